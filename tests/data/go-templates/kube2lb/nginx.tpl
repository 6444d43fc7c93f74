events { worker_connections 1024; }
http {
{{- range .Services }}{{ if and .Endpoints (eq .Port.Mode "http") }}
    upstream {{ . }} {
{{- range .Endpoints }}
        server {{ . }};
{{- end }}
    }
    server {
        listen {{ .Port.Port }};
        server_name{{ range ServerNames . $.Domain }}{{ if .IsRegexp }} "~{{ .Regexp }}"{{ else }} {{ . }}{{ end }}{{ end }};
        location / {
            proxy_pass http://{{ . }};
            {{ if gt .Timeout 0 -}}
            proxy_read_timeout {{ .Timeout }}ms;
            {{- end }}
        }
    }
{{- end }}{{ end }}
}
