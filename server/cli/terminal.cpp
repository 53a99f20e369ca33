#include "server/cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace distilld::cli {
namespace {

constexpr unsigned kUsualWidth = 80;

unsigned columns_of_stdout() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : kUsualWidth;
}

}  // namespace

TerminalWidth terminal_width() {
    return ::isatty(STDOUT_FILENO) != 0 ? TerminalWidth(columns_of_stdout) : TerminalWidth();
}

}  // namespace distilld::cli
