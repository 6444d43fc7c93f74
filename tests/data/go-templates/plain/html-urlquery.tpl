{{ html .html }} {{ .html | html }} {{ urlquery "a b&c=d/é~*()" }} {{ html 1 2 }} {{ urlquery 1 "x y" }}
