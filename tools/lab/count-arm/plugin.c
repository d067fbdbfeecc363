/* A plugin for qemu-user: writes the address of every instruction executed in given ranges of addresses.
   -plugin plugin.so,out=FILE,range=HEX-HEX,range=... The functions of qemu are declared here: no header ships. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 64

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                                   void (*call)(unsigned cpu, void *user), int flags, void *user);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                                  void (*call)(qemu_plugin_id_t id, struct qemu_plugin_tb *block));
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t id, void *user),
                                           void *user);

extern int qemu_plugin_version;
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments);

int qemu_plugin_version = 1;

static uint64_t first[MAX_RANGES], end[MAX_RANGES];
static int ranges;
static FILE *out;

static void executed(unsigned cpu, void *address)
{
    (void)cpu;
    fprintf(out, "%lx\n", (unsigned long)(uintptr_t)address);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    size_t i, count = qemu_plugin_tb_n_insns(block);
    int r;

    (void)id;
    for (i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);

        for (r = 0; r < ranges && !(address >= first[r] && address < end[r]); r++)
            ;
        if (r < ranges)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, 0, (void *)(uintptr_t)address);
    }
}

static void finished(qemu_plugin_id_t id, void *user)
{
    (void)id;
    (void)user;
    fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments)
{
    int i;

    (void)info;
    for (i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '='), *rest;

        if (value && strncmp(arguments[i], "out=", 4) == 0) {
            out = fopen(value + 1, "w");
        } else if (value && ranges < MAX_RANGES) {
            first[ranges] = strtoull(value + 1, &rest, 16);
            end[ranges++] = strtoull(rest + 1, NULL, 16);
        }
    }
    if (!out)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
