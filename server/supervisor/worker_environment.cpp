#include "server/supervisor/worker_environment.hpp"

#include <cstdlib>

namespace distilld {

std::vector<std::string> worker_environment() {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
        if (std::getenv(name) != nullptr) {
            return {};
        }
    }
    return {"GOMP_SPINCOUNT=1000"};
}

}  // namespace distilld
