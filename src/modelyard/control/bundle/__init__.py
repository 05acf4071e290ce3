"""Everything that a bug report needs, without anybody's secrets."""
