#include "server/jobs/rendered_jobs.hpp"

#include <iterator>
#include <utility>

#include "base/json_text.hpp"
#include "server/jobs/api_route.hpp"
#include "server/jobs/job_access.hpp"

namespace distilld {

boost::asio::awaitable<std::string> RenderedJobs::text(const api::Request& request) {
    const std::string id(request.path_parameter("id"));
    // Before the job is read: what changes in between makes the text newer than it says, never older.
    const auto version = manager_.version_of(id);
    if (const auto* kept = find(id, version, request)) {
        co_return *kept;
    }
    const api::Job job = co_await job_of(manager_, request);
    ++rendered_;
    auto text = to_text(api::to_json_object(visible_job(job, request), true));
    // A place may be left and taken again, which no number tells: only a text that shows the version's own is kept.
    if (job.queue_position.value_or(0) == version.queue_position) {
        keep(job, version, may_act_on(job.owner_id, request) ? View::whole : View::without_queries, text);
    }
    co_return text;
}

std::string RenderedJobs::key_of(const std::string& id, View view) {
    return (view == View::whole ? "+" : "-") + id;
}

const std::string* RenderedJobs::find(const std::string& id, const JobVersion& version, const api::Request& request) {
    for (const View view : {View::whole, View::without_queries}) {
        const auto found = by_key_.find(key_of(id, view));
        if (found == by_key_.end()) {
            continue;
        }
        const auto place = found->second;
        if (place->version != version) {
            drop(place);
        } else if (may_act_on(place->owner_id, request) == (view == View::whole)) {
            kept_.splice(kept_.begin(), kept_, place);
            return &place->text;
        }
    }
    return nullptr;
}

void RenderedJobs::keep(const api::Job& job, const JobVersion& version, View view, const std::string& text) {
    const auto key = key_of(job.id, view);
    if (const auto other = by_key_.find(key); other != by_key_.end()) {  // of a request beside this one
        drop(other->second);
    }
    if (text.size() > limits_.max_bytes || limits_.max_texts == 0) {
        return;
    }
    kept_.push_front({key, job.owner_id, version, text});
    by_key_[key] = kept_.begin();
    bytes_ += text.size();
    while (bytes_ > limits_.max_bytes || kept_.size() > limits_.max_texts) {
        drop(std::prev(kept_.end()));
    }
}

void RenderedJobs::drop(Place place) {
    bytes_ -= place->text.size();
    by_key_.erase(place->key);
    kept_.erase(place);
}

}  // namespace distilld
