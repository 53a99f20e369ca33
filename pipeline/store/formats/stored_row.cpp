#include <span>

#include "base/crc32c.hpp"
#include "pipeline/store/formats/row_codec.hpp"

namespace distilld {

StoredRowView view_of(const StoredRow& row) {
    return {row.row, row.tokens, row.mask, {row.streams.begin(), row.streams.end()}};
}

std::uint32_t checksum_of(const StoredRowView& row) {
    std::uint32_t crc = crc32c(std::as_bytes(std::span(&row.row, 1)));
    crc = crc32c(row.mask, crc);
    for (const auto stream : row.streams) {
        crc = crc32c(stream, crc);
    }
    return crc;
}

}  // namespace distilld
