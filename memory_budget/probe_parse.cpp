#include <algorithm>
#include <charconv>
#include <limits>

#include "memory_budget/probe.h"

namespace tandem::budget {
namespace {

// The next line without its end; `rest` moves past it.
std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& rest) {
  const size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    rest = {};
    return {};
  }
  rest.remove_prefix(begin);
  const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

template <typename T>
bool read_number(std::string_view word, T& out) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  return error == std::errc() && end == word.data() + word.size();
}

// A count of the kernel: never negative, and with room to be added up.
bool read_count(std::string_view word, int64_t& out) {
  int64_t value = 0;
  if (!read_number(word, value) || value < 0 || value > (int64_t{1} << 60)) return false;
  out = value;
  return true;
}

bool read_kib(std::string_view rest, int64_t& out) {
  int64_t kib = 0;
  if (!read_count(next_word(rest), kib) || kib > (int64_t{1} << 50)) return false;
  if (next_word(rest) != "kB") return false;
  out = kib * 1024;
  return true;
}

struct Field {
  std::string_view key;
  int64_t* target;
  bool is_kib = true;
  bool seen = false;
};

// "Key: value kB" lines; the first of a key counts. False when a wanted value is malformed.
template <size_t N>
bool read_fields(std::string_view text, std::array<Field, N>& fields) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, colon);
    for (Field& field : fields) {
      if (field.key != key || field.seen) continue;
      std::string_view rest = line.substr(colon + 1);
      const bool ok =
          field.is_kib ? read_kib(rest, *field.target) : read_count(next_word(rest), *field.target);
      if (!ok) return false;
      field.seen = true;
    }
  }
  return true;
}

// "12.34" to 1234.
bool read_hundredths(std::string_view word, int32_t& out) {
  const size_t dot = word.find('.');
  if (dot == std::string_view::npos || word.size() != dot + 3) return false;
  int32_t whole = 0;
  int32_t part = 0;
  if (!read_number(word.substr(0, dot), whole) || !read_number(word.substr(dot + 1), part)) {
    return false;
  }
  if (whole < 0 || whole > 100 || part < 0) return false;
  out = whole * 100 + part;
  return true;
}

bool read_psi_line(std::string_view rest, PsiLine& out) {
  PsiLine line;
  const auto value_of = [&rest](std::string_view key) {
    std::string_view word = next_word(rest);
    if (!word.starts_with(key)) return std::string_view{};
    return word.substr(key.size());
  };
  if (!read_hundredths(value_of("avg10="), line.avg10)) return false;
  if (!read_hundredths(value_of("avg60="), line.avg60)) return false;
  if (!read_hundredths(value_of("avg300="), line.avg300)) return false;
  if (!read_count(value_of("total="), line.total_us)) return false;
  out = line;
  return true;
}

}  // namespace

bool parse_meminfo(std::string_view text, Meminfo& out) noexcept {
  Meminfo m;
  std::array<Field, 19> fields = {{{"MemTotal", &m.total},
                                   {"MemFree", &m.free},
                                   {"MemAvailable", &m.available},
                                   {"Buffers", &m.buffers},
                                   {"Cached", &m.cached},
                                   {"SwapTotal", &m.swap_total},
                                   {"SwapFree", &m.swap_free},
                                   {"AnonPages", &m.anon},
                                   {"Mapped", &m.mapped},
                                   {"Shmem", &m.shmem},
                                   {"Dirty", &m.dirty},
                                   {"Writeback", &m.writeback},
                                   {"Slab", &m.slab},
                                   {"KernelStack", &m.kernel_stack},
                                   {"PageTables", &m.page_tables},
                                   {"Unevictable", &m.unevictable},
                                   {"HugePages_Total", &m.hugepages_total, false},
                                   {"HugePages_Free", &m.hugepages_free, false},
                                   {"Hugepagesize", &m.hugepage_bytes}}};
  if (!read_fields(text, fields)) return false;
  if (!fields[0].seen || !fields[1].seen || !fields[2].seen) return false;
  if (m.total <= 0 || m.free > m.total || m.available > m.total) return false;
  out = m;
  return true;
}

int64_t driver_residual(const Meminfo& m) noexcept {
  const int64_t named = m.free + m.buffers + m.cached + m.anon + m.slab + m.kernel_stack +
                        m.page_tables;
  return std::max<int64_t>(0, m.total - named);
}

int64_t allocatable_bytes(const Meminfo& m) noexcept {
  if (m.hugepages_total <= 0) return m.available;
  // A pool of pages that exist cannot be larger than the host.
  if (m.hugepage_bytes <= 0 || m.hugepages_free > m.total / m.hugepage_bytes) return 0;
  return m.hugepages_free * m.hugepage_bytes;
}

bool parse_psi(std::string_view text, Psi& out) noexcept {
  Psi psi;
  bool some = false;
  while (!text.empty()) {
    std::string_view rest = next_line(text);
    const std::string_view kind = next_word(rest);
    if (kind == "some") {
      if (!read_psi_line(rest, psi.some)) return false;
      some = true;
    } else if (kind == "full" && !read_psi_line(rest, psi.full)) {
      return false;
    }
  }
  if (some) out = psi;
  return some;
}

bool parse_buddyinfo(std::string_view text, Buddy& out) noexcept {
  Buddy buddy;
  while (!text.empty()) {
    std::string_view rest = next_line(text);
    if (!rest.starts_with("Node ")) continue;
    const size_t zone = rest.find("zone");
    if (zone == std::string_view::npos) return false;
    rest.remove_prefix(zone + 4);
    next_word(rest);  // the zone's name
    size_t order = 0;
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
      int64_t blocks = 0;
      if (order == kBuddyOrdersMax || !read_count(word, blocks)) return false;
      if (blocks > (int64_t{1} << 40)) return false;
      buddy.blocks[order] = std::min(buddy.blocks[order] + blocks, int64_t{1} << 40);
      ++order;
    }
    buddy.orders = std::max(buddy.orders, order);
  }
  if (buddy.orders == 0) return false;
  out = buddy;
  return true;
}

int64_t blocks_at_least(const Buddy& buddy, size_t order) noexcept {
  int64_t blocks = 0;
  for (size_t i = order; i < buddy.orders; ++i) blocks += buddy.blocks[i];
  return blocks;
}

bool parse_vmstat(std::string_view text, Vmstat& out) noexcept {
  Vmstat v;
  bool seen = false;
  while (!text.empty()) {
    std::string_view rest = next_line(text);
    const std::string_view key = next_word(rest);
    int64_t* target = nullptr;
    int64_t stalls = 0;
    const bool stall = key == "allocstall" || key.starts_with("allocstall_");
    if (stall) target = &stalls;
    if (key == "compact_stall") target = &v.compact_stalls;
    if (key == "compact_fail") target = &v.compact_fails;
    if (key == "pswpin") target = &v.swap_in_pages;
    if (key == "pswpout") target = &v.swap_out_pages;
    if (key == "pgmajfault") target = &v.major_faults;
    if (key == "oom_kill") target = &v.oom_kills;
    if (target == nullptr) continue;
    if (!read_count(next_word(rest), *target)) return false;
    if (stall) v.allocstalls = std::min(v.allocstalls + stalls, int64_t{1} << 60);
    if (key == "pswpin") seen = true;
  }
  if (seen) out = v;
  return seen;
}

bool parse_process_stat(std::string_view text, ProcessStat& out) noexcept {
  // The name is the process's own choice, brackets, blanks and line ends included: the last bracket ends it.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return false;
  ProcessStat s;
  std::string_view head = text.substr(0, open);
  if (!read_count(next_word(head), s.pid) || s.pid == 0) return false;
  const std::string_view name = text.substr(open + 1, close - open - 1);
  std::copy_n(name.begin(), std::min(name.size(), s.name.size() - 1), s.name.begin());
  std::string_view rest = text.substr(close + 1);
  if (const size_t end = rest.find('\n'); end != std::string_view::npos) rest = rest.substr(0, end);
  const std::string_view state = next_word(rest);
  if (state.size() != 1) return false;
  s.state = state[0];
  if (!read_count(next_word(rest), s.parent)) return false;
  if (!read_count(next_word(rest), s.group)) return false;
  if (!read_count(next_word(rest), s.session)) return false;
  for (int field = 7; field < 22; ++field) next_word(rest);
  if (!read_number(next_word(rest), s.start_ticks)) return false;
  out = s;
  return true;
}

bool parse_process_status(std::string_view text, ProcessMemory& out) noexcept {
  ProcessMemory m;
  std::array<Field, 5> fields = {{{"Uid", &m.uid, false},
                                  {"RssAnon", &m.anon},
                                  {"RssFile", &m.file},
                                  {"RssShmem", &m.shmem},
                                  {"VmSwap", &m.swap}}};
  // The first line is the name, which may contain anything but a line end.
  if (!text.starts_with("Name:")) return false;
  next_line(text);
  if (!read_fields(text, fields) || !fields[0].seen) return false;
  out = m;
  return true;
}

bool parse_smaps_rollup(std::string_view text, ProcessMemory& out) noexcept {
  ProcessMemory m = out;
  std::array<Field, 2> fields = {{{"Anonymous", &m.anon}, {"Swap", &m.swap}}};
  next_line(text);  // the range of addresses, which holds colons
  if (!read_fields(text, fields) || !fields[0].seen) return false;
  out = m;
  return true;
}

bool is_driver_no_memory_line(std::string_view line) noexcept {
  return line.find("NVRM") != std::string_view::npos &&
         line.find("NV_ERR_NO_MEMORY") != std::string_view::npos;
}

DeviceMemoryKind judge_device_memory(const DeviceAnswer& answer, int64_t host_total) noexcept {
  if (!answer.present) return DeviceMemoryKind::none;
  if (!answer.success || answer.total_bytes <= 0) return DeviceMemoryKind::not_supported;
  const int64_t distance = answer.total_bytes > host_total ? answer.total_bytes - host_total
                                                           : host_total - answer.total_bytes;
  // The driver rounds and reserves; a card with just the host's size to 3 % is not sold.
  if (distance < host_total / 32) return DeviceMemoryKind::whole_host;
  return answer.integrated ? DeviceMemoryKind::implausible : DeviceMemoryKind::discrete;
}

const char* device_memory_kind_name(DeviceMemoryKind kind) noexcept {
  switch (kind) {
    case DeviceMemoryKind::none: return "none";
    case DeviceMemoryKind::discrete: return "discrete";
    case DeviceMemoryKind::not_supported: return "not_supported";
    case DeviceMemoryKind::whole_host: return "whole_host";
    case DeviceMemoryKind::implausible: return "implausible";
  }
  return "?";
}

}  // namespace tandem::budget
