-- ARGV: the tip to read after, if there is one
-- Answers {'gone'} or {'reading', reading}.

if not tip_and() then return {'gone'} end
return {'reading', reading(ARGV[1])}
