-- ARGV: optionally the tip to read after
-- Returns {'gone'} or {'reading', reading}.

if not tip_and() then return {'gone'} end
return {'reading', reading(ARGV[1])}
