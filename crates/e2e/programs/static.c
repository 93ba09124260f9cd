// Long enough for `pleat run` to notice that there is no agent inside.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    usleep(1200 * 1000);
    puts("static");
    return 5;
}
