#include "pipeline/graph/decode_stage.hpp"

#include <stdexcept>
#include <utility>

#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

/// One of the `max_at_once` places, given back however the decoding ends.
struct DecodeStage::Place {
    explicit Place(DecodeStage& the_stage) : stage(the_stage) {
        ++stage.running_;
        stage.note_state();
    }
    ~Place() {
        --stage.running_;
        stage.wake_next();
        stage.note_state();
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    DecodeStage& stage;
};

DecodeStage::DecodeStage(asio::any_io_executor io, asio::any_io_executor decode, std::uint32_t max_at_once,
                         TraceWriter* trace)
    : decode_(std::move(decode)), max_at_once_(max_at_once), trace_(trace), io_(std::move(io)) {
    note_state();
}

asio::awaitable<FetchResult<TeacherTargets>> DecodeStage::decode(AnswerKey key, EncodedAnswer answer) {
    struct Waiting {
        Waiting(DecodeStage& the_stage, AnswerKey key)
            : stage(the_stage), turn(stage.io_), mine(stage.waiting_.emplace(key, &turn)) {}
        ~Waiting() {
            stage.waiting_.erase(mine);
            stage.wake_next();  // it may have been woken and cancelled: pass the turn on
        }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;

        DecodeStage& stage;
        Condition turn;
        std::multimap<AnswerKey, Condition*>::iterator mine;
    };
    {
        Waiting waiting(*this, key);
        while (running_ >= max_at_once_ || waiting_.begin() != waiting.mine) {
            co_await waiting.turn.wait();
        }
    }
    const Place place(*this);
    struct Decoded {
        FetchResult<TeacherTargets> targets;
        Instant began;
        Instant ended;
    };
    auto work = [encoded = std::move(answer)]() mutable {
        const Instant began = steady_now();
        auto targets = encoded.decode();
        return Decoded{std::move(targets), began, steady_now()};
    };
    Decoded decoded = co_await run_on(decode_, std::move(work));
    if (trace_ != nullptr) {
        trace_->overlapping_span(Stage::decode, "decode", decoded.began, decoded.ended, key.number);
    }
    co_return std::move(decoded.targets);
}

void DecodeStage::wake_next() {
    if (running_ < max_at_once_ && !waiting_.empty()) {
        waiting_.begin()->second->notify();
    }
}

void DecodeStage::keep(AnswerKey key, std::optional<TeacherTargets> targets) {
    kept_.emplace(key, std::move(targets));
    note_state();
}

std::optional<TeacherTargets> DecodeStage::take(AnswerKey key) {
    auto node = kept_.extract(key);
    if (node.empty()) {
        throw std::out_of_range("decode stage: an answer that is not kept");
    }
    note_state();
    return std::move(node.mapped());
}

void DecodeStage::note_state() {
    if (running_ > 0) {
        clock_.enter(StageClock::State::busy);
    } else if (!kept_.empty()) {
        clock_.enter(StageClock::State::wait_output);
    } else {
        clock_.enter(StageClock::State::wait_input);
    }
}

}  // namespace distilld
