#include "server/jobs/store/journal_attempt.hpp"

#include <string>
#include <utility>

namespace distilld {
namespace {

class JournalAttempt final : public AttemptRecord {
  public:
    JournalAttempt(JobJournal& journal, JobAttempt attempt) : journal_(journal), attempt_(std::move(attempt)) {}

    Stored stored() const override {
        if (!journal_.is_current(attempt_)) {
            return {};
        }
        const StoredJob& job = journal_.stored(attempt_.job);
        return {job.attempt_token, job.attempt_place, job.attempt_received};
    }

    bool set_token(std::string token_hash) override {
        if (!journal_.is_current(attempt_)) {
            return false;
        }
        auto& job = journal_.edit(attempt_.job);
        job.attempt_token = std::move(token_hash);
        job.attempt_place.clear();
        job.attempt_received = 0;
        return journal_.save(attempt_.job);
    }

    bool set_place(std::string place) override {
        if (!journal_.is_current(attempt_)) {
            return false;
        }
        journal_.edit(attempt_.job).attempt_place = std::move(place);
        return journal_.save(attempt_.job);
    }

    void begin_message(std::uint64_t number) override {
        if (journal_.is_current(attempt_)) {
            journal_.hold(attempt_.job);
            journal_.edit(attempt_.job).attempt_received = number;
        }
    }

    void end_message() override { journal_.release(attempt_.job); }

    void save() override {
        if (journal_.is_current(attempt_)) {
            static_cast<void>(journal_.save(attempt_.job));
        }
    }

    std::uint64_t saved() const override {
        return journal_.is_current(attempt_) ? journal_.saved_received(attempt_.job) : 0;
    }

  private:
    JobJournal& journal_;
    const JobAttempt attempt_;
};

}  // namespace

std::shared_ptr<AttemptRecord> make_attempt_record(JobJournal& journal, JobAttempt attempt) {
    return std::make_shared<JournalAttempt>(journal, std::move(attempt));
}

}  // namespace distilld
