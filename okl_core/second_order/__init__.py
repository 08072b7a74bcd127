"""Second-order learning: spaces (exact, Nystrom, Fourier, linear) and rules (Newton, ridge, AAR, AIOLI)."""
