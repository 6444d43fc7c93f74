a {{- .name -}} b {{- .n -}} c
