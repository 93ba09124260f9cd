// A library whose constructor comes before the agent's: of those with -z initfirst glibc takes the one that it has loaded last.
void begin(void);

__attribute__((constructor)) static void construct(void) { begin(); }
