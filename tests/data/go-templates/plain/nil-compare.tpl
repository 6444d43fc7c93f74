{{ if not .nothing }}empty{{ end }} {{ or .nothing "default" }} {{ and .nothing 1 | printf "%v" }}
