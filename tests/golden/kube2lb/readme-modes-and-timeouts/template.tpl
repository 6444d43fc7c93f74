{{ $services := .Services }}
{{- range $i, $service := $services }}
{{ $service.Port.Mode }}
{{- if gt $service.Timeout 0 }}
timeout server {{ $service.Timeout }}
{{- end }}
{{- end }}
