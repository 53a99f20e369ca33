#include <algorithm>
#include <boost/json/array.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "base/ascii.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/openai/exported_files.hpp"
#include "server/openai/openai_objects.hpp"
#include "server/openai/openai_routes.hpp"
#include "server/support/log.hpp"

namespace distilld::openai {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using http::BodyEnd;
using http::Request;
using http::Response;

constexpr std::uint32_t kListMax = 10'000;  // the same as OpenAI's
/// Allowance for the form around the file.
constexpr std::uint64_t kFormBytes = 64U << 10;

[[noreturn]] void file_not_found(const Request& request, const std::string& id) {
    refuse(request, 404, "file_not_found", "there is no file '" + id + "'", "id");
}

[[noreturn]] void no_room(const Request& request, const FileStore& files) {
    refuse(request, 507, "uploads_full",
           "the files that were sent may take " + std::to_string(files.space()) +
               " bytes together (--upload-space), and with this one they would take more: delete some of them",
           "file");
}

/// Answers an upload's error.
[[noreturn]] void refuse_upload(const Request& request, const FileStore& files, const FileUpload& upload,
                                const Error& error) {
    if (upload.no_room()) {
        no_room(request, files);
    }
    if (error.kind == ErrorKind::invalid_input) {
        refuse(request, 400, "invalid_form", error.message, upload.field());
    }
    log::error("files", error.message);
    if (error.kind == ErrorKind::disk_full) {
        refuse(request, 507, "disk_full", "there is no space for the file on the service's disk", "file");
    }
    throw ErrorException(error);
}

/// A lower bound for the file's size, from the form's Content-Length; 0 without that header.
std::uint64_t least_file_bytes(const Request& request) {
    const auto length = number_from<std::uint64_t>(request.header("content-length").value_or("")).value_or(0);
    return length - std::min(length, kFormBytes);
}

/// A file that a client uploaded or a job exported.
struct FoundFile {
    json::object object;
    FileOpener open;
    std::string owner_id;
};

void check_owner(const Request& request, const std::string& owner_id) {
    if (!may_act_on(owner_id, request)) {
        refuse(request, 403, "not_your_file",
               "the file belongs to another key: only that key and keys of role admin may read it", "id");
    }
}

class FileApi {
  public:
    explicit FileApi(const OpenAiParts& parts) : parts_(parts) {}

    asio::awaitable<Response> upload(Request request) {
        check_query(request, {});
        const auto boundary = multipart_boundary_of(request);
        const auto uploading = parts_.files->begin_upload(boundary);
        if (!uploading->has_room(least_file_bytes(request))) {
            no_room(request, *parts_.files);
        }
        auto body = request.body_source;
        for (auto end = BodyEnd::not_yet; end == BodyEnd::not_yet;) {
            auto piece = co_await body->next();
            end = piece.end;
            check_end(request, end);
            auto writing = run_on(parts_.files->disk(),
                                  [uploading, bytes = std::move(piece.bytes)] { return uploading->take(bytes); });
            const auto taken = co_await std::move(writing);
            if (!taken) {
                refuse_upload(request, *parts_.files, *uploading, taken.error());
            }
        }
        auto finishing = run_on(parts_.files->disk(), [uploading] { return uploading->finish(); });
        auto file = co_await std::move(finishing);
        if (!file) {
            refuse_upload(request, *parts_.files, *uploading, file.error());
        }
        if (request.caller) {
            file->owner_id = request.caller->id;
        }
        if (file->bytes > parts_.upload_limit) {
            too_large(request);
        }
        co_await parts_.files->add(uploading, *file);
        co_return json_response(200, file_object(*file));
    }

    asio::awaitable<Response> list(Request request) {
        FileQuery query;
        QueryReader reader(request, {"after", "limit", "order", "purpose"});
        query.limit = reader.limit(kListMax, kListMax);
        query.after = reader.value("after").value_or("");
        query.purpose = reader.value("purpose").value_or("");
        query.oldest_first = !reader.newest_first(true);
        reader.finish();
        const auto page = co_await parts_.files->list(query);
        if (page.unknown_after) {
            refuse(request, 400, "invalid_parameter", "after is not the id of a file: '" + query.after + "'", "after");
        }
        json::array data;
        for (const auto& file : page.files) {
            data.push_back(file_object(file));
        }
        co_return json_response(200, list_object(std::move(data), page.has_more));
    }

    asio::awaitable<Response> get(Request request) {
        check_query(request, {});
        const auto file = co_await found(request);
        co_return json_response(200, file.object);
    }

    asio::awaitable<Response> content(Request request) {
        check_query(request, {});
        const auto file = co_await found(request);
        check_owner(request, file.owner_id);
        Response response;
        response.content_type = "application/octet-stream";
        response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
        response.stream = co_await parts_.files->content(file.open);
        co_return response;
    }

    asio::awaitable<Response> remove(Request request) {
        check_query(request, {});
        const std::string id(request.path_parameter("id"));
        if (job_of_exported_file(id)) {
            static_cast<void>(co_await found(request));
            refuse(request, 409, "file_of_a_model",
                   "file '" + id + "' is part of the model that a job made: delete the model", "id");
        }
        const auto file = co_await found(request);
        check_owner(request, file.owner_id);
        std::set<std::string> ended;
        FileRemoval removal;
        while (true) {
            removal = co_await parts_.files->remove(id, ended);
            if (removal.kind != FileRemoval::Kind::in_use) {
                break;
            }
            const auto job = co_await parts_.manager.get(removal.job_id);
            if (job && !api::is_terminal(job->state)) {
                break;
            }
            ended.insert(removal.job_id);
        }
        if (removal.kind == FileRemoval::Kind::not_found) {
            file_not_found(request, id);
        }
        if (removal.kind == FileRemoval::Kind::in_use) {
            refuse(request, 409, "file_in_use",
                   "file '" + id + "' is read by job '" + removal.job_id + "', which has not ended", "id");
        }
        const json::object body{{"id", id}, {"object", "file"}, {"deleted", true}};
        co_return json_response(200, body);
    }

  private:
    static std::string multipart_boundary_of(const Request& request) {
        auto boundary = http::multipart_boundary(request.header("content-type").value_or(""));
        if (!boundary) {
            refuse(request, 415, "unsupported_media_type", boundary.error().message, "content-type");
        }
        return *std::move(boundary);
    }

    [[noreturn]] void too_large(const Request& request) const {
        refuse(request, 413, "file_too_large",
               "the file is larger than " + std::to_string(parts_.upload_limit) + " bytes (--max-upload-size)", "file");
    }

    void check_end(const Request& request, BodyEnd end) const {
        switch (end) {
            case BodyEnd::not_yet:
            case BodyEnd::whole:
                return;
            case BodyEnd::too_large:
                too_large(request);
            case BodyEnd::malformed:
                refuse(request, 400, "malformed_body", "the request body is not chunked as it says");
            case BodyEnd::lost:
                refuse(request, 400, "body_lost", "the request body broke off");
        }
    }

    asio::awaitable<FoundFile> found(const Request& request) {
        const std::string id(request.path_parameter("id"));
        if (const auto job_id = job_of_exported_file(id)) {
            const auto job = co_await parts_.manager.get(*job_id);
            if (job) {
                auto looking = run_on(parts_.files->disk(), [job] { return exported_files(*job); });
                const auto files = co_await std::move(looking);
                const auto file = std::ranges::find(files, id, &ExportedFile::id);
                if (file != files.end()) {
                    FileOpener open = [job = *job, name = file->name] { return open_exported(job, name); };
                    co_return FoundFile{file_object(*file, unix_time_of(job->finished_at).value_or(0)), std::move(open),
                                        job->owner_id};
                }
            }
            file_not_found(request, id);
        }
        const auto file = co_await parts_.files->get(id);
        if (!file) {
            file_not_found(request, id);
        }
        co_return FoundFile{file_object(*file), parts_.files->opener(id), file->owner_id};
    }

    const OpenAiParts parts_;
};

}  // namespace

std::vector<http::Route> make_file_routes(const OpenAiParts& parts) {
    const auto api = std::make_shared<FileApi>(parts);
    std::vector<http::Route> routes{
        api_route(api, "POST", "/v1/files", &FileApi::upload),
        api_route(api, "GET", "/v1/files", &FileApi::list),
        api_route(api, "GET", "/v1/files/{id}", &FileApi::get),
        api_route(api, "DELETE", "/v1/files/{id}", &FileApi::remove),
        api_route(api, "GET", "/v1/files/{id}/content", &FileApi::content),
    };
    auto& upload = routes.front();
    upload.json_body = false;
    upload.streamed_body = true;
    upload.body_limit = parts.upload_limit + kFormBytes;
    return routes;
}

}  // namespace distilld::openai
