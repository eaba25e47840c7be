// A library that a driver needs and that is not always there.

__attribute__((visibility("default"))) int fake_needed(void);

int fake_needed(void)
{
    return 1;
}
