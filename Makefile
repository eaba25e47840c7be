# The two commands of the README, and what packagers need. Everything real is
# in meson.build and scripts/.
#
#   make run [PHOTOS=folder]   build, then blur photos on the GPU (or on the
#                              emulated device) and write JPEG files
#   make check                 build, then run all tests
#   make check-long            the same with the full numbers of random cases
#   make bundle [TESTS=1]      a tree in bundle/ that runs on other machines
#   make install [PREFIX=/usr/local] [DESTDIR=]

BUILD ?= build
PREFIX ?= /usr/local
DEVICE ?= auto
OUT ?= out

.PHONY: all run check check-long bundle install deps clean

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

deps:
	sh scripts/deps

$(BUILD)/build.ninja: | deps
	meson setup $(BUILD) --prefix $(abspath $(PREFIX)) --libdir lib -Dtests=false

run: all
	BUILD=$(BUILD) OUT=$(OUT) DEVICE=$(DEVICE) PHOTOS="$(PHOTOS)" \
	    sh scripts/run-example

check:
	sh scripts/deps check
	python3 scripts/check.py

check-long:
	sh scripts/deps check
	PENSTOCK_TEST_LONG=1 python3 scripts/check.py

bundle: all
	[ -z "$(TESTS)" ] || { sh scripts/deps check && \
	    meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD); }
	sh scripts/bundle $(BUILD) bundle $(TESTS)

# The prefix may be another than the one the build was set up with.
install: all
	meson configure $(BUILD) --prefix $(abspath $(PREFIX))
	ninja -C $(BUILD)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf build build-* bundle out
