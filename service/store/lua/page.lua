-- ARGV: two rounds, limit of entries, limit of their bytes
-- Returns the entries after the first round, up to the second, within the limits.

return page(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
