{{- $domain := .Domain -}}
{{ range $service := .Services }}{{ if eq $service.Port.Mode "http" }}
{{- range $i, $name := ServerNames $service $domain }}{{ if not $name.IsRegexp }}
http://{{ $name }}:{{ $service.Port.Port }} {
	reverse_proxy {{ range $service.Endpoints }} {{ . }}{{ end }} {
		lb_policy least_conn
		{{- if $service.Timeout }}
		transport http {
			response_header_timeout {{ $service.Timeout }}ms
		}
		{{- end }}
	}
}
{{ end }}{{ end }}{{ end }}{{ end }}