{{ define "inner" }}({{ . }}){{ end }}{{ define "outer" }}<{{ template "inner" .name }}{{ template "inner" .n }}>{{ end }}{{ template "outer" . }}
