{{ range .Services }}{{ if and (eq .Port.Mode "http") (gt .Timeout 0) }}A{{ else if or (eq .Port.Protocol "udp") (not .Endpoints) }}B{{ else }}C{{ end }}{{ end }}
