#include "api/page.hpp"

namespace distilld::api {

const Page* built_in_page() {
    return nullptr;
}

}  // namespace distilld::api
