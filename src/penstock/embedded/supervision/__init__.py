"""The supervisor: start components in dependency order, watch them, restart them and stop them."""
