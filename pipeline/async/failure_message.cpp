#include "pipeline/async/failure_message.hpp"

namespace distilld {

std::string failure_message(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "something that is not an exception was thrown";
    }
}

}  // namespace distilld
