#include "tests/simulation/cluster_user.hpp"

#include <algorithm>
#include <utility>

#include "api/job_spec_json.hpp"
#include "server/jobs/checks/spec_claims.hpp"

namespace distilld::test {
namespace {

constexpr Millis kPatience = 10'000;  ///< before a request is sent again

}  // namespace

User::User(Stage& stage, FindService service, std::uint32_t number)
    : stage_(stage), service_(std::move(service)), job_("job-" + std::to_string(number)) {
    spec_ = R"({"name":")" + job_ +
            R"(","student":{"model":"/m"},"dataset":{"train":"/t.jsonl","sequence_length":16},)"
            R"("training":{"max_steps":10,"batch_size":2},"output":"/distilld-simulation/)" +
            job_ + R"("})";
    draw_orders();
}

void User::draw_orders() {
    orders_ = {"submit"};
    for (std::uint64_t pauses = stage_.draw(3); pauses > 1; --pauses) {
        orders_.insert(orders_.end(), {"pause", "resume"});
    }
    if (stage_.chance(4)) {
        orders_.emplace_back("checkpoint");
    }
    if (stage_.chance(4)) {
        orders_.emplace_back("cancel");
    }
    if (stage_.chance(6)) {
        orders_.emplace_back("delete");
    }
}

bool User::pauses() const {
    return std::ranges::find(orders_, "pause") != orders_.end();
}

void User::begin() {
    stage_.at(static_cast<Millis>(stage_.draw(20'000)), [this] { send(); });
}

void User::send() {
    if (is_done()) {
        return;
    }
    stage_.at(stage_.delay(), [this, order = next_] {
        const auto service = service_();
        if (!service || order != next_) {
            return;
        }
        asked_to_cancel_ = asked_to_cancel_ || orders_[order] == "cancel";
        service->post([this, order, weak = std::weak_ptr(service)] {
            const bool final = carry_out(*weak.lock(), orders_[order]);
            if (!stage_.chance(6)) {  // the answer arrives
                stage_.at(stage_.delay(), [this, order, final] { on_answer(order, final); });
            }
        });
    });
    stage_.at(kPatience, [this, order = next_] {
        if (order == next_) {
            send();
        }
    });
}

void User::on_answer(std::size_t order, bool final) {
    if (order != next_ || !final) {
        return;
    }
    stage_.tell(job_ + ": " + orders_[order] + " is answered");
    accepted_ = true;
    cancelled_ = cancelled_ || orders_[order] == "cancel";
    deleted_ = orders_[order] == "delete";
    ++next_;
    stage_.at(static_cast<Millis>(stage_.draw(30'000)), [this] { send(); });
}

bool User::carry_out(ServiceProcess& service, const std::string& order) {
    auto& core = service.core();
    try {
        if (!core.ready) {
            return false;
        }
        if (order == "submit") {
            return submit(service);
        }
        const JobOutcome outcome =
            order == "delete" ? core.remove(job_) : core.command(job_, job_verb(order), true, {});
        if (outcome.kind == JobVerdict::accepted) {
            core.pump();
        }
        if (outcome.kind == JobVerdict::not_found && order != "delete") {
            stage_.violate(job_ + " is lost: the service does not know it when asked to " + order);
        }
        // With a full disk, a command is obeyed, and a restart forgets it: a user who knows that asks again.
        return !core.journal.needs_retry() && (order != "delete" || outcome.kind != JobVerdict::not_terminal);
    } catch (const ErrorException&) {
        return false;  // 503: again later
    }
}

bool User::submit(ServiceProcess& service) {
    SubmitRequest request;
    request.spec_json = spec_;
    request.idempotency_key = "key of " + job_;
    request.id = job_;
    PreparedSpec prepared;
    auto spec = api::parse_job_spec(spec_);
    if (!spec) {
        stage_.violate(api::describe(spec.error()));
        return true;
    }
    prepared.spec = std::make_shared<const JobSpec>(*std::move(spec));
    prepared.claims = claims_of(*prepared.spec);
    const JobOutcome outcome = service.core().submit(request, std::move(prepared));
    if (outcome.kind != JobVerdict::created && outcome.kind != JobVerdict::existing) {
        stage_.violate(job_ + " is refused: " + api::describe(outcome.violations));
    }
    return true;
}

}  // namespace distilld::test
