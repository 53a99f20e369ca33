#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ascii.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {
namespace {

struct Piece {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
};

/// The piece that a range asks for; nullopt if its form is not supported, so that the whole file is sent.
std::optional<Piece> asked_piece(std::string_view range, std::uint64_t size) {
    constexpr std::string_view kUnit = "bytes=";
    const std::size_t dash = range.find('-');
    if (!range.starts_with(kUnit) || dash == std::string_view::npos) {
        return std::nullopt;
    }
    const auto first = number_from<std::uint64_t>(range.substr(kUnit.size(), dash - kUnit.size()));
    const std::string_view end = range.substr(dash + 1);
    const auto last = end.empty() ? std::optional(size) : number_from<std::uint64_t>(end);
    if (!first || !last || *last < *first) {
        return std::nullopt;
    }
    const std::uint64_t stop = *last < size ? *last + 1 : size;
    return Piece{*first, *first < stop ? stop - *first : 0};
}

std::optional<Piece> asked_piece(const http::Request& request, std::uint64_t size) {
    const auto range = request.header("Range");
    return range ? asked_piece(*range, size) : std::nullopt;
}

std::string etag_of(const models::ServedHead& head) {
    return '"' + head.sha256 + '"';
}

bool is_known(const models::ServedHead& head, const http::Request& request) {
    const auto known = request.header("If-None-Match");
    return known && known->find(etag_of(head)) != std::string_view::npos;
}

}  // namespace

std::uint64_t head_answer_bytes(const models::ServedHead& head, const http::Request& request) {
    if (is_known(head, request)) {
        return 0;
    }
    const auto piece = asked_piece(request, head.file_bytes());
    return piece ? piece->count : head.file_bytes();
}

http::Response head_answer(const models::ServedHead& head, const http::Request& request) {
    const std::uint64_t size = head.file_bytes();
    http::Response response;
    response.content_type = "application/octet-stream";
    response.headers = {{"ETag", etag_of(head)}, {"Accept-Ranges", "bytes"}};
    if (is_known(head, request)) {
        response.status = 304;
        return response;
    }
    const auto piece = asked_piece(request, size);
    if (!piece) {
        response.body = head.piece(0, size);
        return response;
    }
    if (piece->count == 0) {
        response.status = 416;
        response.content_type = "application/json";
        response.headers.emplace_back("Content-Range", "bytes */" + std::to_string(size));
        response.body = error_body("the head has " + std::to_string(size) + " bytes");
        return response;
    }
    response.status = 206;
    response.headers.emplace_back("Content-Range", "bytes " + std::to_string(piece->first) + "-" +
                                                       std::to_string(piece->first + piece->count - 1) + "/" +
                                                       std::to_string(size));
    response.body = head.piece(piece->first, piece->count);
    return response;
}

}  // namespace distilld::teacher
