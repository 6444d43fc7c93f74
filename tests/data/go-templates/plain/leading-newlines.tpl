

{{ .name }}