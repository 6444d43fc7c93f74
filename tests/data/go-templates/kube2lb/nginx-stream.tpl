stream {
{{- range $s := .Services }}{{ if eq .Port.Mode "tcp" }}{{ with .Endpoints }}
    upstream {{ $s }} { {{ range . }}server {{ . }}; {{ end }}}
    server { listen {{ $s.Port.Port }}{{ if eq $s.Port.Protocol "udp" }} udp{{ end }}; proxy_pass {{ $s }}; }
{{- end }}{{ end }}{{ end }}
}
