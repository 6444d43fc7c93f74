{{ (index .people 0).name }} {{ (len .words) }} {{ print (len .words) (len .name) }} {{ if (and .yes (not .no)) }}ok{{ end }} {{ ((.name)) }}
