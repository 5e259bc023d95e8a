#!/usr/bin/env bash
# Build what a release publishes: wheel, source distribution and npm package. The same commit gives the same bytes.
#
#     deploy/release.sh VERSION FOLDER
set -euo pipefail
version=${1:?version, such as 1.0.0}
mkdir -p "${2:?folder for the files}"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

stated=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' murk/__init__.py)
[[ $stated == "$version" ]] || { echo "murk/__init__.py states version $stated, not $version: change one" >&2; exit 1; }
packaged=$(sed -n 's/^  "version": "\(.*\)",/\1/p' devices/web/package.json)
[[ $packaged == "$version" ]] || { echo "devices/web/package.json states version $packaged, not $version: change one" >&2; exit 1; }
grep -q "^## $version - [0-9]" CHANGELOG.md || { echo "CHANGELOG.md has no dated section for $version: add one" >&2; exit 1; }

# Archives get the commit's time instead of the files' own.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
python=${PYTHON:-python3}
"$python" -m pip install --quiet 'build>=1.2'
"$python" -m build --outdir "$folder" .
(
  cd devices/web
  npm ci --no-audit --no-fund
  # npm's provenance needs the repository's address, which is that of the workflow: a fork's package names the fork.
  cp package.json "$folder/package.json"
  trap 'mv "$folder/package.json" package.json' EXIT
  if [[ -n ${GITHUB_REPOSITORY:-} ]]; then npm pkg set "repository=github:$GITHUB_REPOSITORY"; fi
  npm pack --pack-destination "$folder"
)
(cd "$folder" && sha256sum ./*.whl ./*.tar.gz ./*.tgz)
