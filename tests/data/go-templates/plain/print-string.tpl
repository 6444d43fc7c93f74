{{ .name }}|{{.name}}|{{ .empty }}|
