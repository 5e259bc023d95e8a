// Encapsulates requests and decapsulates their answers, in hexadecimal lines. A request is: key configurations, mode
// (known or indeterminate), method, path, fields as name=value, content as a last line; then its answer.
use bhttp::{Message, Mode};
use ohttp::ClientRequest;
use std::io::{self, BufRead, Write};

fn bytes(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn main() {
    let mut lines = io::stdin().lock().lines().map(Result::unwrap);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let (keys, mode, method, path) = (words[0], words[1], words[2], words[3]);
        let mut request = Message::request(method.into(), b"https".to_vec(), b"gateway.test".to_vec(), path.into());
        for field in &words[4..] {
            let (name, value) = field.split_once('=').unwrap();
            request.put_header(name, value);
        }
        request.write_content(bytes(&lines.next().unwrap()));
        let mode = if mode == "known" { Mode::KnownLength } else { Mode::IndeterminateLength };
        let mut message = Vec::new();
        request.write_bhttp(mode, &mut message).unwrap();
        let client = ClientRequest::from_encoded_config_list(&bytes(keys)).unwrap();
        let (sealed, waiting) = client.encapsulate(&message).unwrap();
        println!("{}", hex(&sealed));
        io::stdout().flush().unwrap();
        let opened = waiting.decapsulate(&bytes(&lines.next().unwrap())).unwrap();
        let answer = Message::read_bhttp(&mut io::Cursor::new(opened)).unwrap();
        let kind = answer.header().get(b"content-type").unwrap_or(b"none");
        println!("{} {} {}", answer.control().status().unwrap().code(), hex(kind), hex(answer.content()));
        io::stdout().flush().unwrap();
    }
}
