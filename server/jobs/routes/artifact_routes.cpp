#include "server/jobs/routes/artifact_routes.hpp"

#include <algorithm>
#include <boost/asio/thread_pool.hpp>
#include <cctype>
#include <memory>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/artifact_archive.hpp"
#include "server/jobs/routes/artifact_folder.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;
using Piece = std::optional<std::string>;

/// Threads that wait for disk reads, for any number of clients.
constexpr std::size_t kReaders = 4;

struct WholeFolder {
    WholeFolder(ArtifactFolder folder, std::vector<ArtifactEntry> entries)
        : archive(std::move(folder), std::move(entries)) {}
    Piece next() { return archive.next(); }
    ArtifactArchive archive;
};

struct OneFile {
    explicit OneFile(ArtifactFile opened) : file(std::move(opened)) {}
    Piece next() {
        std::string bytes = file.read(ArtifactArchive::kPieceBytes);
        return bytes.empty() ? Piece() : Piece(std::move(bytes));
    }
    ArtifactFile file;
};

/// Reads each piece on request, on another thread: memory holds one piece, however slow the client is.
template <class Source>
class PoolStream final : public http::BodyStream {
  public:
    PoolStream(asio::any_io_executor pool, std::shared_ptr<Source> source)
        : pool_(std::move(pool)), source_(std::move(source)) {}

    asio::awaitable<Piece> next() override {
        // The work holds the source too: cancelling does not take it from a thread that reads.
        auto reading = run_on(pool_, [source = source_] { return source->next(); });
        co_return co_await std::move(reading);
    }

  private:
    asio::any_io_executor pool_;
    std::shared_ptr<Source> source_;
};

/// Safe within a quoted text, and as a file name on any disk.
std::string safe_name(std::string name) {
    name = name.substr(name.rfind('/') + 1);
    std::ranges::replace_if(
        name,
        [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_'; },
        '_');
    return name;
}

void make_download(Response& response, const char* type, const std::string& name) {
    response.content_type = type;
    response.headers = {{"Content-Disposition", "attachment; filename=\"" + name + "\""},
                        {"Cache-Control", "no-store"},
                        {"X-Content-Type-Options", "nosniff"}};
}

/// Empty if the folder that the output leads to may no longer be named.
Result<std::optional<ArtifactFolder>> allowed_folder_of(const api::Job& job, const SpecPolicy& policy) {
    auto folder = artifact_folder_of(job);
    if (folder && *folder && policy) {
        JobSpec alone;
        alone.output = (*folder)->root.string();
        if (!policy(alone).violations.empty()) {
            folder->reset();
        }
    }
    return folder;
}

class ArtifactApi {
  public:
    ArtifactApi(JobManager& manager, SpecPolicy policy) : manager_(manager), policy_(std::move(policy)) {}

    asio::awaitable<Response> artifacts(Request request) {
        check_query(request, {"path"});
        const api::Job job = co_await job_of(manager_, request);
        if (!may_act_on(job.owner_id, request)) {
            refuse(
                request, 403, "not_your_job",
                "job '" + job.id + "' belongs to another key: only that key and administrators may read its artifacts");
        }
        if (job.state != api::JobState::succeeded) {
            refuse(request, 409, "no_artifacts",
                   "job '" + job.id + "' has no artifacts: it " + api::said_of(job.state) +
                       ", and only a job that has succeeded has artifacts");
        }
        auto looking = run_on(pool_.get_executor(), [job, policy = policy_] { return allowed_folder_of(job, policy); });
        const auto folder = co_await std::move(looking);
        if (!folder) {
            co_return unreadable(request, folder.error());
        }
        if (!*folder) {
            refuse(request, 404, "artifacts_gone",
                   "the artifacts of job '" + job.id + "' are gone: " + job.output +
                       " is no longer a folder, or another run has written to it since");
        }
        if (const auto path = request.query_value("path")) {
            co_return co_await file_of(request, **folder, std::string(*path));
        }
        co_return co_await tar_of(request, **folder, job.id);
    }

  private:
    asio::awaitable<Response> tar_of(const Request& request, ArtifactFolder folder, std::string id) {
        auto listing = run_on(pool_.get_executor(), [folder] { return list_artifacts(folder); });
        auto entries = co_await std::move(listing);
        if (!entries) {
            co_return unreadable(request, entries.error());
        }
        Response response;
        make_download(response, "application/x-tar", id + ".tar");
        response.stream = stream_of(std::make_shared<WholeFolder>(std::move(folder), std::move(*entries)));
        co_return response;
    }

    asio::awaitable<Response> file_of(const Request& request, ArtifactFolder folder, std::string path) {
        auto opening = run_on(pool_.get_executor(), [folder, path] { return open_artifact(folder, path); });
        auto file = co_await std::move(opening);
        if (!file) {
            co_return unreadable(request, file.error());
        }
        if (!*file) {
            refuse(request, 404, "artifact_not_found", "there is no file '" + path + "' among the artifacts", "path");
        }
        Response response;
        make_download(response, "application/octet-stream", safe_name(path));
        response.content_length = (*file)->size;
        response.stream = stream_of(std::make_shared<OneFile>(std::move(**file)));
        co_return response;
    }

    template <class Source>
    std::unique_ptr<http::BodyStream> stream_of(std::shared_ptr<Source> source) {
        return std::make_unique<PoolStream<Source>>(pool_.get_executor(), std::move(source));
    }

    static Response unreadable(const Request& request, const Error& error) {
        log::error("http", error.message);
        return unavailable(request.path, "artifacts_unavailable",
                           "the job's folder cannot be read; the service's log says why");
    }

    JobManager& manager_;
    const SpecPolicy policy_;
    asio::thread_pool pool_{kReaders};
};

}  // namespace

std::vector<http::Route> make_artifact_routes(JobManager& manager, SpecPolicy policy) {
    const auto api = std::make_shared<ArtifactApi>(manager, std::move(policy));
    return {api_route(api, "GET", "/v1/jobs/{id}/artifacts", &ArtifactApi::artifacts)};
}

}  // namespace distilld
