#include <penstock/penstock.h>

int main(void)
{
    return 0;
}
