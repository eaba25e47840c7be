// Makes a driver need another library.

int fake_needed(void);
__attribute__((visibility("default"))) int fake_orphan(void);

int fake_orphan(void)
{
    return fake_needed();
}
