#include "server/jobs/routes/job_requests.hpp"

#include "api/problem.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/query_reader.hpp"

namespace distilld {
namespace {

constexpr std::size_t kKeyLimit = 255;
constexpr std::string_view kMetadataFilter = "metadata[";

}  // namespace

std::string idempotency_key_of(const http::Request& request) {
    auto header = request.header("idempotency-key");
    if (!header) {
        header = request.header("x-idempotency-key");
    }
    if (!header) {
        return {};
    }
    if (header->empty() || header->size() > kKeyLimit) {
        refuse(request, 400, "invalid_parameter", "Idempotency-Key must have 1 to 255 bytes", "idempotency-key");
    }
    return scoped_idempotency_key(std::string(*header), request);
}

std::map<std::string, std::string> metadata_filter_of(const http::Request& request, QueryReader& asked) {
    std::map<std::string, std::string> wanted;
    for (const auto& [name, text] : request.query) {
        const bool whole = name.starts_with(kMetadataFilter) && name.ends_with(']');
        if (!whole) {
            continue;
        }
        const auto key = name.substr(kMetadataFilter.size(), name.size() - kMetadataFilter.size() - 1);
        if (key.empty() || key.size() > kMetadataNameBytes || text.size() > kMetadataTextBytes) {
            asked.wrong(name, name + ": a name has 1 to " + std::to_string(kMetadataNameBytes) +
                                  " bytes and a text at most " + std::to_string(kMetadataTextBytes));
        }
        wanted[key] = text;
    }
    if (wanted.size() > kMetadataPairs) {
        asked.wrong("metadata", "metadata: at most " + std::to_string(kMetadataPairs) + " pairs can be asked for");
    }
    return wanted;
}

}  // namespace distilld
