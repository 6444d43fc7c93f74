[{{ .nothing }}] [{{ .absent }}] [{{ printf "%v" .nothing }}]
