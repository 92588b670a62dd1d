"""What the black-box tests share: servers in a temporary directory, a raw RESP client, a scripted Redis."""
