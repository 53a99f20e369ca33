#include "server/jobs/store_keeper.hpp"

#include <utility>

#include "server/support/log.hpp"

namespace distilld {

StoreKeeper::StoreKeeper(boost::asio::any_io_executor executor, std::chrono::milliseconds retry, JobJournal& journal,
                         JobMetrics& metrics)
    : retry_interval_(retry), journal_(journal), metrics_(metrics), retry_(std::move(executor)) {}

void StoreKeeper::append(const std::string& id, api::JobEvent event) {
    journal_.append(id, std::move(event));
    saved_or_retried();
}

void StoreKeeper::saved_or_retried() {
    if (journal_.needs_retry()) {
        retry_later();
    }
}

void StoreKeeper::show_counts() {
    try {
        metrics_.set_store(!journal_.needs_retry(), journal_.unsaved_events());
        metrics_.set_jobs_waiting(journal_.waiting());
        metrics_.set_job_counts(journal_.counts());
    } catch (const ErrorException& error) {
        log::error("jobs", error.what());
    }
}

void StoreKeeper::retry_later() {
    if (std::exchange(retrying_, true)) {
        return;
    }
    retry_.expires_after(retry_interval_);
    retry_.async_wait([this](const boost::system::error_code& ec) {
        retrying_ = false;
        if (ec) {
            return;
        }
        journal_.retry();
        show_counts();
        saved_or_retried();
    });
}

}  // namespace distilld
