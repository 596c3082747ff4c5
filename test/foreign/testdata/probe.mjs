// Runs Http11Probe's cases against a server: node probe.mjs DIR HOST PORT. Prints {id: verdict}, and what cannot be read.
//
// The cases are C#, and what they use of it is almost JavaScript: literals put together, lambdas, object
// initialisers, patterns. So they are rewritten, one by one, and run.
import fs from 'fs'
import net from 'net'
import path from 'path'

const [dir, host, port] = process.argv.slice(2)
const patience = 1500
const suites = ['Capabilities', 'Compliance', 'Cookie', 'MalformedInput', 'Normalization', 'Smuggling']

// What the cases know.
const verdicts = { Pass: 'Pass', Fail: 'Fail', Warn: 'Warn' }
const states = { Open: 'Open', ClosedByServer: 'ClosedByServer', TimedOut: 'TimedOut', Error: 'Error' }
const latin = { GetBytes: s => [...Buffer.from(s, 'latin1')], GetByteCount: s => s.length, GetString: b => Buffer.from(b).toString('latin1') }
const utf8 = { GetBytes: s => [...Buffer.from(s)], GetByteCount: s => Buffer.byteLength(s) }
const within = (from, to) => ({ Contains: n => n >= from && n <= to })
const is = (status) => status >= 200 && status < 300
const world = {
  TestVerdict: verdicts, ConnectionState: states,
  TestCategory: {}, RfcLevel: {}, Environment: {}, StringComparison: { Ordinal: 0, OrdinalIgnoreCase: 1 },
  Encoding: { ASCII: latin, Latin1: latin, UTF8: utf8 },
  StatusCodeRange: { Exact: n => within(n, n), Range: within, Range2xx: within(200, 299), Range4xx: within(400, 499), Range4xxOr5xx: within(400, 599) },
  TimeSpan: { FromMilliseconds: n => n, FromSeconds: n => 1000 * n },
  Enumerable: { Range: (from, n) => ({ Select: f => Array.from({ length: n }, (_, i) => f(from + i)) }) },
  string: { Join: (by, list) => list.join(by), IsNullOrEmpty: s => !s, IsNullOrWhiteSpace: s => !s || !s.trim(), Empty: '' },
  DateTimeOffset: { TryParseExact: s => !isNaN(Date.parse(s)), TryParse: s => !isNaN(Date.parse(s)) },
  Random: class { NextBytes (b) { b.forEach((_, i) => { b[i] = (i * 151 + 7) % 256 }) } },
  StringBuilder: class { constructor () { this.s = '' } Append (s) { this.s += s; return this } ToString () { return this.s } },
  MakeRequest: latin.GetBytes,
  GetEffectiveBody: r => r.Text, IsStaticResponse: body => body === 'OK',
  CountHttpStatusLines: raw => (raw.match(/HTTP\/\d\.\d \d{3}/g) || []).length,
  GetHeader: (step, name) => step.Response?.Headers.get(name),
  EchoValidator: body => r => r === null || !is(r.StatusCode) ? 'Fail' : r.Text === body ? 'Pass' : r.Text === 'OK' ? 'Warn' : 'Fail',
  EchoAnalyzer: () => null, MakeAnalyzer: () => null, MakeCaseAnalyzer: () => null, MakeParsedAnalyzer: () => null,
  AnalyzeClTeBoth: null, AnalyzeDuplicateCl: null, AnalyzeTeWithClFallback: null,
  // A name that is not one must not become another.
  MakeValidator: (standard, malformed, value) => (r, state) => {
    if (r === null) return state === 'ClosedByServer' ? 'Pass' : 'Fail'
    if (r.StatusCode >= 400) return 'Pass'
    if (!is(r.StatusCode)) return 'Fail'
    const names = r.Text.split('\n').filter(l => l.trimEnd().endsWith(': ' + value)).map(l => l.split(':')[0].toLowerCase())
    return names.includes(standard.toLowerCase()) ? 'Fail' : names.includes(malformed.toLowerCase()) ? 'Warn' : 'Pass'
  },
  MakeCaseValidator: () => r => r !== null && (r.StatusCode >= 400 || is(r.StatusCode)) ? 'Pass' : 'Fail',
  MakeParsedValidator: (...pairs) => r => r === null || r.StatusCode >= 300 ? 'Fail' : pairs.every(p => r.Text.includes(p)) ? 'Pass' : 'Warn'
}
const define = (type, members) => {
  for (const [name, get] of Object.entries(members)) Object.defineProperty(type.prototype, name, name === 'Length' || name === 'Count' ? { get } : { value: get })
}
const contains = function (s, folded) { return folded ? this.toLowerCase().includes(s.toLowerCase()) : this.includes(s) }
define(String, {
  Length () { return this.length }, Contains: contains, StartsWith (s) { return this.startsWith(s) }, EndsWith (s) { return this.endsWith(s) }, IndexOf (s, i) { return this.indexOf(s, i) },
  Trim () { return this.trim() }, ToLowerInvariant () { return this.toLowerCase() }, Equals (s, folded) { return folded ? this.toLowerCase() === s.toLowerCase() : String(this) === s },
  Any (f) { return [...this].some(f) }, Split (by) { return this.split(by) }, Replace (a, b) { return this.replaceAll(a, b) }, Substring (a, b) { return this.substr(a, b) }
})
define(Array, {
  Length () { return this.length }, Count () { return this.length }, Any (f) { return this.some(f) }, All (f) { return this.every(f) }, CopyTo (to, at) { this.forEach((v, i) => { to[at + i] = v }) }
})
define(Number, { ToString () { return String(this) } })

// rewrite makes JavaScript of C#.
function rewrite (text) {
  text = strings(text.replace(/^\s*\/\/.*$/gm, ''))
  return text
    .replace(/\bnew (Sequence)?(TestCase|ExpectedBehavior|SequenceStep|SequenceSendPart)(\[\])?\s*(?=[{[])/g, '')
    .replace(/^(\s+)([A-Z]\w+) =(?=\s)/gm, '$1$2: ').replace(/\{ ([A-Z]\w+) = /g, '{ $1: ').replace(/, ([A-Z]\w+) = /g, ', $1: ')
    .replace(/\bnew byte\[\]\s*\{([^}]*)\}/g, '[$1]').replace(/\bnew byte\[([^\]]+)\]/g, 'new Array($1).fill(0)')
    .replace(/\bnew string\(('(?:\\.|[^'])+'), ([\w]+)\)/g, '$1.repeat($2)')
    .replace(/\b(?:const string|const int|byte\[\]|string\??|int|var) (\w+) =/g, 'let $1 =').replace(/\bfor \(int /g, 'for (let ')
    .replace(/([\w.?]+)\.TryGetValue\(([^,()]+), out var (\w+)\)/g, '(($3 = $1.get($2)) !== undefined)').replace(/([\w.?]+)\.ContainsKey\(/g, '$1.has(')
    .replace(/, out (_|var \w+)\)/g, ')').replace(/System\.Globalization\.[\w.]+/g, '0')
    .replace(/(\w)!(?=[.;)])/g, '$1')
    .replace(/([A-Za-z_][\w.?]*(?:\[\w+\])?) is ((?:not )?(?:\([^()]*\)|null|'[^']+'|[<>]=?\s*\d+|[\w.]+)(?:\s+(?:and|or)\s+(?:\([^()]*\)|'[^']+'|[<>]=?\s*\d+|[\w.]+))*)/g, (_, value, p) => pattern(value, p))
}

// pattern makes conditions of a pattern that a value is to match.
function pattern (value, p) {
  p = p.trim()
  if (p.startsWith('not ')) return `!(${pattern(value, p.slice(4))})`
  if (/^\([^()]*\)$/.test(p)) return pattern(value, p.slice(1, -1))
  for (const [word, sign] of [['or', '||'], ['and', '&&']]) {
    const parts = p.split(new RegExp(`\\s+${word}\\s+(?![^()]*\\))`))
    if (parts.length > 1) return '(' + parts.map(part => pattern(value, part)).join(` ${sign} `) + ')'
  }
  if (p === 'null') return `${value} == null`
  return /^[<>]/.test(p) ? `${value} ${p}` : `${value} === ${p}`
}

// strings makes templates of strings in which expressions stand.
function strings (text) {
  let out = ''
  for (let i = 0; i < text.length; i++) {
    const filled = text.startsWith('$"', i)
    if (!filled && text[i] !== '"') {
      const char = /^'(\\.[^']*|[^'\\])'/.exec(text.slice(i, i + 8))
      out += char ? char[0] : text[i]
      i += char ? char[0].length - 1 : 0
      continue
    }
    let depth = 0
    let s = ''
    for (i += filled ? 2 : 1; depth > 0 || text[i] !== '"'; i++) {
      const c = text[i]
      if (c === '\\') s += c + text[++i]
      else if (filled && depth === 0 && c === '{' && text[i + 1] === '{') { s += c; i++ } else if (filled && depth === 0 && c === '}' && text[i + 1] === '}') { s += c; i++ } else if (filled && c === '{') { depth++; s += '${' } else if (filled && c === '}') { depth--; s += c } else s += c === '`' || (c === '$' && depth === 0) ? '\\' + c : c
    }
    out += filled ? '`' + s + '`' : '"' + s + '"'
  }
  return out
}

// read returns the cases of a suite that are scored.
function * read (suite) {
  const text = fs.readFileSync(path.join(dir, 'src/Http11Probe/TestCases/Suites', suite + 'Suite.cs'), 'utf8').replaceAll('\r\n', '\n')
  for (const part of text.split('yield return ').slice(1)) {
    const id = /Id = "([^"]+)"/.exec(part)[1]
    const block = part.slice(0, part.indexOf('\n        };') + '\n        }'.length)
    if (block.includes('Scored = false')) continue
    try {
      const made = new Function(...Object.keys(world), 'return (' + rewrite(block) + ')') // eslint-disable-line no-new-func
      yield { id, ...made(...Object.values(world)) }
    } catch (e) {
      yield { id, unread: e }
    }
  }
}

// Connection reads what comes of steps.
class Connection {
  constructor () {
    this.data = Buffer.alloc(0)
    this.state = states.Open
    this.socket = net.connect(port, host)
    this.socket.on('data', d => { this.data = Buffer.concat([this.data, d]); this.wake?.() })
    for (const end of ['end', 'error', 'close']) this.socket.on(end, () => { this.state = states.ClosedByServer; this.wake?.() })
  }

  async step (parts) {
    this.data = Buffer.alloc(0)
    for (const part of parts) {
      this.socket.write(Buffer.from(part.PayloadFactory(context)))
      if (part.DelayAfter) await sleep(part.DelayAfter)
    }
    const end = Date.now() + patience
    while (!this.data.includes('\r\n\r\n') && this.state === states.Open && Date.now() < end) {
      await Promise.race([sleep(end - Date.now()), new Promise(resolve => { this.wake = resolve })])
    }
    if (this.state === states.Open && !this.data.includes('\r\n\r\n')) return { Response: response(this.data), ConnectionState: states.TimedOut }
    await sleep(150)
    return { Response: response(this.data), ConnectionState: this.state }
  }
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const context = { Host: host, Port: +port, HostHeader: `${host}:${port}` }

// response parses what has come.
function response (data) {
  const raw = data.toString('latin1')
  const first = /^(HTTP\/\S+) (\d+) ?(.*?)\r?\n/.exec(raw)
  if (!first) return null
  const end = raw.indexOf('\r\n\r\n')
  const [head, body] = end < 0 ? [raw, ''] : [raw.slice(0, end), raw.slice(end + 4)]
  const headers = new Map()
  for (const line of head.split('\r\n').slice(1)) {
    const [name, ...rest] = line.split(':')
    headers.set(name.trim().toLowerCase(), rest.join(':').trim())
  }
  const of = m => name => m.call(headers, name.toLowerCase())
  const chunked = (headers.get('transfer-encoding') || '').includes('chunked')
  const text = chunked ? body.replace(/([0-9a-f]+)\r\n([^]*?)\r\n(?=[0-9a-f]+\r\n)/gi, '$2').replace(/0\r\n[^]*$/, '') : body
  return { StatusCode: +first[2], Headers: { get: of(headers.get), has: of(headers.has) }, Body: body || null, Text: text.replace(/[\r\n]+$/, ''), RawResponse: raw }
}

// run returns the verdict on a case.
async function run (c) {
  const connection = new Connection()
  const results = []
  for (const step of c.Steps || [c]) {
    if (results.some(r => r.ConnectionState !== states.Open)) {
      results.push({ Label: step.Label, Executed: false, Response: null, ConnectionState: results.at(-1).ConnectionState })
      continue
    }
    const payload = step.PayloadFactory || (ctx => step.DynamicPayloadFactory(ctx, results))
    results.push({ Label: step.Label, Executed: true, ...await connection.step(step.SendPartsFactory?.(context) || [{ PayloadFactory: payload }]) })
  }
  connection.socket.destroy()
  if (c.Validator) return c.Validator(results)
  const { Response: r, ConnectionState: state } = results[0]
  const e = c.Expected
  if (e.CustomValidator) return e.CustomValidator(r, state)
  if (e.ExpectedConnectionState === state) return 'Pass'
  if (r === null) return e.AllowConnectionClose ? 'Pass' : 'Fail'
  return e.ExpectedStatus?.Contains(r.StatusCode) ? 'Pass' : 'Fail'
}

const cases = suites.flatMap(suite => [...read(suite)])
const results = {}
const next = cases.values()
await Promise.all(Array.from({ length: 16 }, async () => {
  for (const c of next) {
    if (!c.unread) await run(c).then(v => { results[c.id] = v }).catch(e => { c.unread = e })
    if (c.unread) results[c.id] = `not read: ${c.unread}`
  }
}))
console.log(JSON.stringify(results))
