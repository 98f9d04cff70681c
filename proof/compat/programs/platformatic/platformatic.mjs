// @platformatic/kafka: node platformatic.mjs BOOTSTRAP PREFIX. Says "ok TEST" or "FAIL TEST: WHY" for each test, which
// are made in their order.
import { Admin, Consumer, ProduceAcks, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [, , bootstrap, prefix] = process.argv
const COUNT = 4000
const PARTITIONS = 3
const BEGAN_MS = 1700000000000
const topic = `${prefix}-main`
const group = `${prefix}-group`
const common = { clientId: 'compat', bootstrapBrokers: bootstrap.split(',') }
const admin = new Admin(common)

const key = n => (n % 10 === 0 ? undefined : `k${n % 100}`)
const value = n => (n % 50 === 7 ? undefined : `v${n}`)

function expect (holds, seen) {
  if (!holds) throw new Error(seen)
}

async function test (name, what) {
  try {
    await what()
    console.log(`ok ${name}`)
  } catch (error) {
    const causes = (error.errors ?? []).map(one => `${one.message} ${(one.errors ?? []).map(each => each.message)}`)
    console.log(`FAIL ${name}: ${error.name}: ${error.message} ${causes}`)
    console.log(error.stack)
  }
}

// Read as a member of a group, from what it has committed, until enough messages are there or nothing more comes.
async function read (groupId, name, count, { commitAt = 0, ...options } = {}) {
  const consumer = new Consumer({ ...common, groupId, deserializers: stringDeserializers, ...options })
  const wanted = { topics: [name], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 300 }
  const stream = await consumer.consume(wanted)
  const found = []
  const timer = setTimeout(() => stream.close(), 60000)
  for await (const message of stream) {
    found.push(message)
    if (found.length === commitAt) await message.commit()
    if (found.length === count) break
  }
  clearTimeout(timer)
  await consumer.close(true)
  expect(found.length === count, `${found.length} messages, expected ${count}`)
  return found
}

async function produce () {
  let n = 0
  for (const compression of ['none', 'gzip', 'snappy', 'lz4']) {
    const producer = new Producer({ ...common, serializers: stringSerializers, idempotent: true, acks: ProduceAcks.ALL })
    const messages = []
    for (let i = 0; i < COUNT / 4; i++, n++) {
      const headers = { n: String(n) }
      const timestamp = BigInt(BEGAN_MS + n)
      messages.push({ topic, partition: n % PARTITIONS, key: key(n), value: value(n), timestamp, headers })
    }
    await producer.send({ messages, compression })
    await producer.close()
  }
}

async function readBack () {
  const last = {}
  for (const one of await read(`${group}-read`, topic, COUNT)) {
    const n = Number(one.headers.get('n'))
    const isRight = (one.key ?? undefined) === key(n) && (one.value ?? undefined) === value(n) &&
      Number(one.timestamp) === BEGAN_MS + n && n > (last[one.partition] ?? -1)
    expect(isRight, `message ${n} is ${one.key}, ${one.value}, ${one.timestamp}`)
    last[one.partition] = n
  }
}

// What was committed is where the next member begins.
async function resume () {
  const consumer = new Consumer({ ...common, groupId: group, deserializers: stringDeserializers })
  await consumer.joinGroup({})
  const offsets = [0, 1, 2].map(partition => ({ topic, partition, offset: 1000n, leaderEpoch: 0 }))
  await consumer.commit({ offsets })
  await consumer.close(true)
  const found = await read(group, topic, COUNT - 3000)
  expect(found.every(one => one.offset >= 1000n), 'a message before the committed offset')
}

async function newProtocol () {
  await read(`${group}-848`, topic, COUNT, { groupProtocol: 'consumer' })
}

async function transactions () {
  const name = `${prefix}-transactions`
  await admin.createTopics({ topics: [name], partitions: 1, replicas: 1 })
  const settings = { serializers: stringSerializers, transactionalId: name, idempotent: true, retries: 5 }
  const producer = new Producer({ ...common, ...settings })
  for (let round = 0; round < 4; round++) {
    const transaction = await producer.beginTransaction()
    const messages = Array.from({ length: 20 }, (_, i) => ({ topic: name, partition: 0, value: `${round}-${i}` }))
    await transaction.send({ messages })
    if (round % 2) await transaction.abort()
    else await transaction.commit()
  }
  await producer.close()
  const rounds = new Set((await read(`${name}-reader`, name, 40)).map(one => one.value[0]))
  expect([...rounds].join() === '0,2', `read are rounds ${[...rounds]}`)
}

async function administration () {
  expect((await admin.listTopics()).includes(topic), 'it is not listed')
  expect((await admin.listGroups()).has(group), 'the group is not listed')
  const described = (await admin.describeGroups({ groups: [group] })).get(group)
  expect(described.state.toLowerCase() === 'empty', `the group is ${described.state}`)
  await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 10n }] }] })
  const [configs] = await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: topic }] })
  expect(configs.configs.some(one => one.name === 'retention.ms'), 'there is no retention.ms')
  await admin.deleteGroups({ groups: [group] })
  await admin.deleteTopics({ topics: [topic] })
  expect(!(await admin.listTopics()).includes(topic), 'it is listed after its deletion')
}

await test('create-topics', async () => {
  await admin.createTopics({ topics: [topic], partitions: PARTITIONS, replicas: 1 })
})
await test('produce', produce)
await test('read', readBack)
await test('resume', resume)
await test('protocol-consumer', newProtocol)
await test('transactions', transactions)
await test('administration', administration)
await admin.close()
process.exit(0)
