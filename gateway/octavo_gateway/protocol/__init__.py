"""What clients send and receive: decoding with precise errors, answers, the error envelope."""
