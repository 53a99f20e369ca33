#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string>

#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_metrics.hpp"

namespace distilld {

/// Writes to the journal on behalf of the manager, tries again what the store refused, and tells the metrics how jobs
/// and store stand. One executor.
class StoreKeeper {
  public:
    /// `retry`: between tries to write to a store that refused. Journal and metrics must outlive it.
    StoreKeeper(boost::asio::any_io_executor executor, std::chrono::milliseconds retry, JobJournal& journal,
                JobMetrics& metrics);

    void append(const std::string& id, api::JobEvent event);
    /// After anything that may have written.
    void saved_or_retried();
    /// Calls what asks for a write at once: its failure (ErrorException) is the caller's as well.
    template <class Write>
    void written(Write write) {
        try {
            write();
        } catch (const ErrorException&) {
            show_counts();
            saved_or_retried();
            throw;
        }
    }
    void show_counts();

  private:
    void retry_later();

    const std::chrono::milliseconds retry_interval_;
    JobJournal& journal_;
    JobMetrics& metrics_;
    boost::asio::steady_timer retry_;
    bool retrying_ = false;
};

}  // namespace distilld
