{{ block "title" .name }}Title: {{ . }}{{ end }} {{ template "title" "again" }}
