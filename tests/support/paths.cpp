#include "tests/support/paths.hpp"

namespace distilld::test {

std::filesystem::path source_dir() {
    return DISTILLD_SOURCE_DIR;
}

std::filesystem::path bin_dir() {
    return DISTILLD_BIN_DIR;
}

}  // namespace distilld::test
