"""Archives: the messages of a log as Parquet files, from which models are fitted after the log's retention."""
