#include "pipeline/teacher/head_taking.hpp"

#include <chrono>
#include <utility>

namespace distilld {
namespace asio = boost::asio;

asio::awaitable<Result<void>> HeadTaking::take(std::vector<TeacherEndpoint*> endpoints, const EndpointProbe& first,
                                               HeadFetchOptions options, TeacherInfo& info) {
    if (given_ && given_->sha256 == first.head->sha256) {
        info.fingerprint = given_->fingerprint;
        info.vocabulary_size = given_->rows;
        co_return Result<void>();
    }
    const auto began = std::chrono::steady_clock::now();
    std::string failures;
    for (TeacherEndpoint* endpoint : endpoints) {
        auto proven = co_await fetch_head(*endpoint, *first.head, first.targets, first.told, options);
        if (proven) {
            given_ = Given{proven->head->sha256, proven->fingerprint, proven->head->rows};
            info.vocabulary_size = proven->head->rows;
            info.head = std::move(proven->head);
            info.fingerprint = std::move(proven->fingerprint);
            counters_.bytes += proven->file_bytes;
            counters_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            co_return Result<void>();
        }
        failures += (failures.empty() ? "" : "; ") + proven.error().message;
    }
    co_return teacher_error("the teacher's head cannot be had: " + failures);
}

}  // namespace distilld
