/* test_program.c - the promises of tools/program.h: energy is counted where the platform tells, also when its counter starts over.
   cc -O2 -pthread test_program.c; writes a few files below /tmp. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "../specdec.h"
#include "check.h"
#include "../tools/program.h"

static char folder[64];

/* What a file of the folder says; NULL: it is not there. */
static void say(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
    file = text ? fopen(path, "w") : NULL;
    if (file) {
        fputs(text, file);
        fclose(file);
    }
}

static int near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

static void test_energy(void)
{
    program_energy energy;

    TEST("energy: nothing is known without a counter, or when it makes no sense");
    program_energy_begin(&energy, "/nowhere/intel-rapl:0");
    CHECK(!energy.known);
    program_energy_look(&energy);
    CHECK(!energy.known && near(energy.joules, 0));
    say("max_energy_range_uj", "1000000\n");
    program_energy_begin(&energy, folder);
    CHECK(!energy.known);
    say("energy_uj", "many\n");
    program_energy_begin(&energy, folder);
    CHECK(!energy.known);

    TEST("energy: differences add up, also over the end of the counter's range; what is skipped does not count");
    say("energy_uj", "400000\n");
    program_energy_begin(&energy, folder);
    CHECK(energy.known && near(energy.joules, 0));
    say("energy_uj", "900000\n");
    program_energy_poll(&energy); /* too early */
    CHECK(near(energy.joules, 0));
    program_energy_look(&energy);
    CHECK(near(energy.joules, 0.5));
    say("energy_uj", "100000\n");
    program_energy_look(&energy);
    CHECK(near(energy.joules, 0.7));
    say("energy_uj", "300000\n");
    program_energy_skip(&energy);
    say("energy_uj", "350000\n");
    energy.looked -= 2 * PROGRAM_ENERGY_SECONDS;
    program_energy_poll(&energy);
    CHECK(near(energy.joules, 0.75));

    TEST("energy: a counter that goes away makes the sum unknown");
    say("energy_uj", NULL);
    program_energy_look(&energy);
    CHECK(!energy.known);
    say("max_energy_range_uj", NULL);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/specdec-energy-%ld", (long)getpid());
    if (mkdir(folder, 0700) != 0)
        return 1;
    test_energy();
    rmdir(folder);
    return check_report("test_program");
}
