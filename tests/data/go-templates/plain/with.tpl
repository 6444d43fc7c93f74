{{ with .map.c }}{{ .d }}{{ $.name }}{{ end }}{{ with .nothing }}x{{ else }}{{ .name }}{{ end }}{{ with $x := .name }}{{ $x }}{{ . }}{{ end }}
